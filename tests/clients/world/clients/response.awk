# A response as curl prints it, to one line: status, body, headers.
/^HTTP\// && !body { status = $2; headers = ""; next }
body { text = text $0; next }
/^\r?$/ { body = status >= 200; next }
{ sub(/\r$/, ""); headers = headers "\t" $0 }
END { print status "\t" text headers }
