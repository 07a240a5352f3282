<?php
$curl = curl_init();
while (($line = fgets(STDIN)) !== false) {
    [$count, $method, $url, $body] = $field = explode("\t", rtrim($line, "\n"));
    for ($n = 0; $n < $count; $n++) {
        curl_reset($curl);
        $received = [];
        curl_setopt_array($curl, [
            CURLOPT_URL => $url,
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_HTTPHEADER => array_slice($field, 4),
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_HEADERFUNCTION => function ($curl, $header) use (&$received) {
                $received[] = trim($header);
                return strlen($header);
            },
        ]);
        if ($body !== "") curl_setopt($curl, CURLOPT_POSTFIELDS, $body);
        $text = curl_exec($curl);
        if ($text === false) exit(curl_error($curl));
        $headers = array_filter($received, fn ($header) => str_contains($header, ": "));
        echo implode("\t", [curl_getinfo($curl, CURLINFO_RESPONSE_CODE), $text, ...$headers]), "\n";
    }
}
