log=$(mktemp)
trap 'rm "$log"' EXIT
while IFS= read -r line; do
  mapfile -td $'\t' field < <(printf %s "$line")
  options=(--method="${field[1]}")
  [ -z "${field[3]}" ] || options+=(--body-data="${field[3]}")
  for header in "${field[@]:4}"; do options+=(--header="$header"); done
  for ((n = 0; n < field[0]; n++)); do options+=("${field[2]}"); done
  {
    # It writes no line break between one response and the next.
    wget -nv -S -O- --save-headers --content-on-error "${options[@]}" 2>"$log" |
      sed -E 's/([]}])HTTP/\1\nHTTP/; $s/$/\n/'
    # It discards the body of a 401, and writes its head to the log only.
    sed -n '/^  HTTP.* 401 /,/^[^ ]/s/^  //p; $s/.*/\n/p' "$log" | grep -A99 HTTP
  } | awk -f responses.awk
done
