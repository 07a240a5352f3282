package require http

fconfigure stdin -encoding utf-8
fconfigure stdout -encoding utf-8
while {[gets stdin line] >= 0} {
    set headers [lassign [split $line \t] count method url body]
    set sent {}
    foreach header $headers {
        regexp {^(.*?): (.*)$} $header -> name value
        lappend sent $name $value
    }
    set options [list -method $method -headers $sent]
    if {$body ne ""} {
        lappend options -query [encoding convertto utf-8 $body] -type application/json
    }
    for {set n 0} {$n < $count} {incr n} {
        set token [http::geturl $url {*}$options]
        set fields [list [http::ncode $token] [encoding convertfrom utf-8 [http::data $token]]]
        foreach {name value} [http::meta $token] { lappend fields "$name: $value" }
        puts [join $fields \t]
        http::cleanup $token
    }
    flush stdout
}
