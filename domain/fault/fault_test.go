package fault_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"parallelsandbox/domain/fault"
)

var sentinel = fault.New(fault.Locked, "a person holds the box; try again later")

func TestACauseIsKeptAndNotShown(t *testing.T) {
	cause := errors.New("dial 10.0.0.3: refused")
	err := fmt.Errorf("exec in box: %w", sentinel.Because(cause))
	if fault.Sentence(err) != sentinel.Public || fault.KindOf(err) != fault.Locked {
		t.Errorf("shown as %s: %q", fault.KindOf(err), fault.Sentence(err))
	}
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "10.0.0.3") {
		t.Errorf("the log gets %q, without the cause", err)
	}
	if !errors.Is(err, sentinel) {
		t.Error("with a cause it is not its sentinel any more")
	}
	if sentinel.Error() != sentinel.Public {
		t.Error("the sentinel itself was changed")
	}
}

func TestFaultsAreToldApart(t *testing.T) {
	for what, other := range map[string]error{
		"another kind":     fault.New(fault.Conflict, "%s", sentinel.Public),
		"another sentence": fault.New(fault.Locked, "something else"),
		"no fault":         errors.New(sentinel.Public),
	} {
		if errors.Is(other, sentinel) {
			t.Errorf("%s is taken for the sentinel", what)
		}
	}
}

// Whatever is no fault is ours, and gives nothing away.
func TestOtherErrorsGiveNothingAway(t *testing.T) {
	err := errors.New("open /var/lib/secret: permission denied")
	if fault.KindOf(err) != fault.Internal || strings.Contains(fault.Sentence(err), "secret") || fault.Sentence(err) == "" {
		t.Errorf("shown as %s: %q", fault.KindOf(err), fault.Sentence(err))
	}
	if fault.KindOf(nil) != fault.Internal {
		t.Error("no error has a kind")
	}
}

func TestWhatCanBeRepeated(t *testing.T) {
	retryable := map[fault.Kind]bool{fault.Locked: true, fault.NoCapacity: true, fault.Unavailable: true, fault.PlanLimit: true}
	for _, k := range fault.Kinds {
		if k.Retryable() != retryable[k] {
			t.Errorf("%s: retryable is %v", k, k.Retryable())
		}
	}
}

// Every kind that is declared is listed, once.
func TestKindsAreAllListed(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			declared += len(g.Specs)
		}
	}
	seen := map[fault.Kind]bool{}
	for _, k := range fault.Kinds {
		if seen[k] {
			t.Errorf("%s is listed twice", k)
		}
		seen[k] = true
	}
	if declared == 0 || len(fault.Kinds) != declared {
		t.Errorf("%d kinds are listed, %d declared", len(fault.Kinds), declared)
	}
}
