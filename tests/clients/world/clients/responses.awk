# Responses as curl and wget print them, to one line each: status, body, headers.
/^HTTP\// { status = $2; headers = ""; body = 0; next }
body { print status "\t" $0 headers; body = 0; next }
/^\r?$/ { body = 1; next }
{ sub(/\r$/, ""); headers = headers "\t" $0 }
