package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// send makes a request; it returns the line for its response, or for its error.
func send(field []string) string {
	request := must(http.NewRequest(field[3], field[4], strings.NewReader(field[5])))
	for _, header := range field[6:] {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	client := http.Client{Timeout: time.Duration(must(strconv.ParseFloat(field[2], 64)) * 1e9)}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Sprintf("0\t%T", err)
	}
	defer response.Body.Close()
	line := fmt.Sprintf("%d\t%s", response.StatusCode, must(io.ReadAll(response.Body)))
	for name, values := range response.Header {
		for _, value := range values {
			line += fmt.Sprintf("\t%s: %s", name, value)
		}
	}
	return line
}

func main() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		count := must(strconv.Atoi(field[0]))
		lines := make(chan string, count)
		for n := 0; n < count; n++ {
			if field[1] == "" {
				lines <- send(field)
			} else {
				go func() { lines <- send(field) }()
			}
		}
		for n := 0; n < count; n++ {
			fmt.Println(<-lines)
		}
	}
}
