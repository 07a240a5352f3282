<?php
while (($line = fgets(STDIN)) !== false) {
    [$count, $method, $url, $body] = $field = explode("\t", rtrim($line, "\n"));
    $options = ["method" => $method, "header" => array_slice($field, 4), "ignore_errors" => true];
    if ($body !== "") $options["content"] = $body;
    for ($n = 0; $n < $count; $n++) {
        $text = file_get_contents($url, false, stream_context_create(["http" => $options]));
        [, $status] = explode(" ", $http_response_header[0]);
        echo implode("\t", [$status, $text, ...array_slice($http_response_header, 1)]), "\n";
    }
}
