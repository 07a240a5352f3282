directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
while IFS= read -r line; do
  mapfile -td $'\t' field < <(printf %s "$line")
  options=(-m "${field[2]}" -X "${field[3]}")
  [ "${field[3]}" != HEAD ] || options+=(--head)
  [ -z "${field[1]}" ] || options+=(--parallel)
  [ -z "${field[5]}" ] || options+=(--data-raw "${field[5]}")
  for header in "${field[@]:6}"; do options+=(-H "$header"); done
  files=()
  for ((n = 0; n < field[0]; n++)); do
    files+=("$directory/$n")
    options+=(-o "${files[n]}" "${field[4]}")
  done
  rm -f "$directory"/*
  curl -sSi "${options[@]}" 2>"$directory/errors"
  error=$(grep -o '^curl: ([0-9]*)' "$directory/errors")
  for file in "${files[@]}"; do
    [ -s "$file" ] && awk -f response.awk "$file" || printf '0\t%s\n' "$error"
  done
done
