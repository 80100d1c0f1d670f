package rest_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"parallelsandbox/adapters/rest"
	"parallelsandbox/domain/fault"
)

// spec is schemas/openapi.yaml, and which of its operations were seen to work.
type spec struct {
	doc    *openapi3.T
	router routers.Router
	mu     sync.Mutex
	worked map[string]bool
}

func loadSpec(t testing.TB) *spec {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../schemas/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.PlainBodyDecoder)
	doc.Servers = nil // the tests have their own addresses
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &spec{doc: doc, router: router, worked: map[string]bool{}}
}

// check holds one exchange against the description. A request that was accepted must be
// described as valid; whatever was answered must be described.
func (s *spec) check(t testing.TB, req *http.Request, content []byte, resp *http.Response, answer []byte) {
	t.Helper()
	find := req.Clone(context.Background())
	if find.Method == http.MethodHead {
		find.Method = http.MethodGet
	}
	route, params, err := s.router.FindRoute(find)
	if err != nil {
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s %s is not described, and answers %s", req.Method, req.URL.Path, resp.Status)
		}
		return
	}
	find.Body = io.NopCloser(bytes.NewReader(content))
	in := &openapi3filter.RequestValidationInput{
		Request: find, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	accepted := resp.StatusCode < 300
	if accepted {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			t.Errorf("%s %s was accepted, but is described as invalid: %v", req.Method, req.URL, err)
		}
		s.mu.Lock()
		s.worked[find.Method+" "+route.Path] = true
		s.mu.Unlock()
	}
	if req.Method == http.MethodHead {
		return
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(answer)), Options: in.Options,
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("%s %s answers %s, which is not as described: %v", req.Method, req.URL.Path, resp.Status, err)
	}
}

// everyOperationAnswered fails for what is described and in no transcript.
func (s *spec) everyOperationAnswered(t *testing.T) {
	for _, op := range s.operations() {
		if !s.worked[op] {
			t.Errorf("no transcript shows %s at work", op)
		}
	}
}

func (s *spec) operations() (all []string) {
	for path, item := range s.doc.Paths.Map() {
		for method := range item.Operations() {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

func TestRoutesAreExactlyThoseDescribed(t *testing.T) {
	described, served := loadSpec(t).operations(), rest.Routes(t)
	if strings.Join(described, "\n") != strings.Join(served, "\n") {
		t.Errorf("described\n%s\nserved\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
}

func TestEveryCodeIsDescribed(t *testing.T) {
	enum := loadSpec(t).doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum
	var kinds []any
	for _, k := range fault.Kinds {
		kinds = append(kinds, string(k))
	}
	if !slices.Equal(enum, kinds) {
		t.Errorf("described %v, are %v", enum, kinds)
	}
}

func TestPhasesDescribed(t *testing.T) {
	for _, v := range loadSpec(t).doc.Components.Schemas["Phase"].Value.Enum {
		w := open(t, nil)
		if resp, body := w.do("GET", "/v1/boxes?status="+v.(string), nil); resp.StatusCode != http.StatusOK {
			t.Errorf("status %v: %s", v, body)
		}
	}
}
