# The arguments are options of curl.
while IFS= read -r line; do
  mapfile -td $'\t' field < <(printf %s "$line")
  options=(-X "${field[1]}")
  [ -z "${field[3]}" ] || options+=(--data-raw "${field[3]}")
  for header in "${field[@]:4}"; do options+=(-H "$header"); done
  for ((n = 0; n < field[0]; n++)); do options+=("${field[2]}"); done
  curl -sSi -w '\n' "$@" "${options[@]}" | awk -f responses.awk
done
