# Java reads a key store, not a PEM file.
if [ -n "${SSL_CERT_FILE-}" ]; then
  store=$(mktemp -d)
  trap 'rm -r "$store"' EXIT
  keytool -importcert -noprompt -file "$SSL_CERT_FILE" -keystore "$store/trusted" \
    -storepass petstore >&2
  set -- "-Djavax.net.ssl.trustStore=$store/trusted" -Djavax.net.ssl.trustStorePassword=petstore
fi
java "$@" HttpClient.java
