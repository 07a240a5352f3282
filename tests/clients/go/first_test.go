package main

import (
	"net/http"
	"testing"
)

func TestTheNextLinkIsFoundAmongOthers(t *testing.T) {
	for want, lines := range map[string][]string{
		"/a?b=1,2": {`</a?b=1,2>; rel="next"`},
		"/b":       {`</x>; rel=prev, </b>; title="x"; REL=Next`},
		"/c":       {`</x>; rel="prev"`, `</c>;rel="first next"`},
		"/d":       {`</x>; title="</y>; rel=\"next\", <z>"; rel=last, </d>; rel="next"`},
		"":         {`</x>; rel="next-archive"`, `</y>`},
	} {
		if got := nextLink(http.Header{"Link": lines}); got != want {
			t.Errorf("%q: got %q", lines, got)
		}
	}
}
