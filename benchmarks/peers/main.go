// Go's net/http and encoding/json, nothing else.
// Run: go build -o server main.go && ./server PORT
package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

type status string

func (s *status) UnmarshalJSON(text []byte) error { // also called for null
	switch string(text) {
	case `"available"`, `"pending"`, `"sold"`:
		*s = status(text[1 : len(text)-1])
		return nil
	}
	return errors.New("status: expected one of available, pending, sold")
}

type newPet struct {
	Name       *string `json:"name"`
	CategoryID *int64  `json:"categoryId"`
	Status     status  `json:"status"`
}

type pet struct {
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	CategoryID int64  `json:"categoryId"`
	Status     status `json:"status,omitempty"`
}

type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status"`
}

const realm = `Bearer realm="petstore"`

var (
	lock     sync.RWMutex
	pets     []pet
	ids      = map[status][]int64{"available": nil, "pending": nil, "sold": nil}
	clients  = map[[32]byte]string{sha256.Sum256([]byte("benchmark-key-of-ours")): "benchmark"}
	process  string
	requests atomic.Int64

	wellFormed = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	limits     = regexp.MustCompile(`^([1-9][0-9]?|100)$`)
	cursors    = regexp.MustCompile(`^p[01][0-9a-f]{13}$`)
	idPattern  = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)
)

func add(name string, category int64, state status) pet {
	lock.Lock()
	defer lock.Unlock()
	made := pet{int64(len(pets) + 1), name, category, state}
	pets = append(pets, made)
	if state != "" {
		ids[state] = append(ids[state], made.ID)
	}
	return made
}

func send(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		log.Panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func refuse(w http.ResponseWriter, code int, name, message string) {
	send(w, code, refusal{name, message, code})
}

func invalid(w http.ResponseWriter, message string) {
	refuse(w, http.StatusBadRequest, "invalid_request", message)
}

func head(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-Id")
	if !wellFormed.MatchString(id) {
		id = process + "-" + strconv.FormatInt(requests.Add(1), 16)
	}
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// guarded requires a key before it calls the handler.
func guarded(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		head(w, r)
		if strings.HasPrefix(r.URL.Path, "/v1/pets/") {
			w.Header().Set("Deprecation", "@1764892800")
			w.Header().Set("Sunset", "Thu, 05 Dec 2030 00:00:00 GMT")
			w.Header().Set("Link", `</v1/pets>; rel="successor-version"`)
		}
		scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		key = strings.Trim(key, " ")
		if !strings.EqualFold(scheme, "bearer") || key == "" {
			w.Header().Set("WWW-Authenticate", realm)
			refuse(w, http.StatusUnauthorized, "unauthorized",
				"An API key is missing: send Authorization: Bearer <API_KEY>.")
			return
		}
		if _, known := clients[sha256.Sum256([]byte(key))]; !known {
			w.Header().Set("WWW-Authenticate", realm+`, error="invalid_token"`)
			refuse(w, http.StatusUnauthorized, "unauthorized", "The API key is not valid.")
			return
		}
		handler(w, r)
	}
}

// given returns the one value of a query parameter, whether there is one, and whether it fits.
func given(query url.Values, name string, fits func(string) bool) (string, bool, bool) {
	values := query[name]
	if len(values) == 0 {
		return "", false, true
	}
	return values[0], true, len(values) == 1 && fits(values[0])
}

func listPets(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		invalid(w, "query string: expected percent-encoded UTF-8.")
		return
	}
	limit, after := 20, int64(0)
	text, is, fits := given(query, "limit", limits.MatchString)
	if !fits {
		invalid(w, "limit: expected a whole number from 1 to 100.")
		return
	} else if is {
		limit, _ = strconv.Atoi(text)
	}
	text, is, fits = given(query, "cursor", cursors.MatchString)
	if !fits {
		invalid(w, "cursor: expected one from the next link of a page, unchanged.")
		return
	} else if is {
		after, _ = strconv.ParseInt(text[1:], 16, 64)
	}
	text, is, fits = given(query, "status", func(s string) bool {
		return s == "available" || s == "pending" || s == "sold"
	})
	if !fits {
		invalid(w, "status: expected one of available, pending, sold.")
		return
	}
	page, chosen, more := make([]pet, 0, limit), "", false
	lock.RLock()
	if is {
		list := ids[status(text)]
		begin := sort.Search(len(list), func(i int) bool { return list[i] > after })
		end := min(begin+limit, len(list))
		for _, id := range list[begin:end] {
			page = append(page, pets[id-1])
		}
		chosen, more = "&status="+text, end < len(list)
	} else {
		begin := min(after, int64(len(pets)))
		end := min(begin+int64(limit), int64(len(pets)))
		page = append(page, pets[begin:end]...)
		more = end < int64(len(pets))
	}
	lock.RUnlock()
	if more {
		w.Header().Set("Link", fmt.Sprintf(`</v1/pets?limit=%d%s&cursor=p%014x>; rel="next"`,
			limit, chosen, page[len(page)-1].ID))
	}
	send(w, http.StatusOK, page)
}

func createPet(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 65536))
	if err != nil {
		invalid(w, "body: expected at most 65536 bytes.")
		return
	}
	var sent newPet
	if err := json.Unmarshal(body, &sent); err != nil {
		invalid(w, "body: "+err.Error()+".")
		return
	}
	if sent.Name == nil || sent.CategoryID == nil {
		invalid(w, "body: expected name and categoryId.")
		return
	}
	made := add(*sent.Name, *sent.CategoryID, sent.Status)
	w.Header().Set("Location", "/v1/pets/"+strconv.FormatInt(made.ID, 10))
	send(w, http.StatusCreated, made)
}

func getPet(w http.ResponseWriter, r *http.Request) {
	text := r.PathValue("id")
	id := int64(0)
	if idPattern.MatchString(text) {
		id, _ = strconv.ParseInt(text, 10, 64)
	}
	lock.RLock()
	if id < 1 || id > int64(len(pets)) {
		lock.RUnlock()
		refuse(w, http.StatusNotFound, "not_found", "Pet not found.")
		return
	}
	found := pets[id-1]
	lock.RUnlock()
	send(w, http.StatusOK, found)
}

func main() {
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	process = hex.EncodeToString(random)
	for n := range 10000 {
		state := []status{"available", "pending", "sold"}[n%3]
		add(fmt.Sprintf("pet%05d", n), int64(n%10), state)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pets", guarded(listPets))
	mux.HandleFunc("POST /v1/pets", guarded(createPet))
	mux.HandleFunc("GET /v1/pets/{id}", guarded(getPet))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		head(w, r)
		refuse(w, http.StatusNotFound, "not_found", "Path not found.")
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], mux))
}
