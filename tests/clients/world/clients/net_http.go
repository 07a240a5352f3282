package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for n := must(strconv.Atoi(field[0])); n > 0; n-- {
			request := must(http.NewRequest(field[1], field[2], strings.NewReader(field[3])))
			for _, header := range field[4:] {
				name, value, _ := strings.Cut(header, ": ")
				request.Header.Set(name, value)
			}
			response := must(http.DefaultClient.Do(request))
			fmt.Printf("%d\t%s", response.StatusCode, must(io.ReadAll(response.Body)))
			response.Body.Close()
			for name, values := range response.Header {
				for _, value := range values {
					fmt.Printf("\t%s: %s", name, value)
				}
			}
			fmt.Println()
		}
	}
}
