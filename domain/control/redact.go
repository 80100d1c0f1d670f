package control

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// redactor replaces the values of a tenant's secrets by their names, so that no value
// reaches an event, a log or an error.
type redactor struct {
	versions map[string]string // of the secrets it was made from
	replace  *strings.Replacer
}

func (r *redactor) clean(text string) string { return r.replace.Replace(text) }

// cleanAll cleans in place.
func (r *redactor) cleanAll(texts []string) []string {
	for i := range texts {
		texts[i] = r.clean(texts[i])
	}
	return texts
}

// err cleans an error. A cause is dropped where anything had to be replaced.
func (r *redactor) err(err error) error {
	if err == nil || r.clean(err.Error()) == err.Error() {
		return err
	}
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return fault.New(f.Kind, "%s", r.clean(f.Public))
	}
	return errors.New(r.clean(err.Error()))
}

func newRedactor(versions, values map[string]string) *redactor {
	names := slices.Sorted(maps.Keys(values))
	// The longest first: one value may hold another.
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(len(values[b]), len(values[a])) })
	var pairs []string
	for _, name := range names {
		if v := values[name]; v != "" {
			pairs = append(pairs, v, "[secret "+name+"]")
		}
	}
	return &redactor{versions: versions, replace: strings.NewReplacer(pairs...)}
}

// redactors keeps one redactor for each tenant, as long as its secrets stay the same.
type redactors struct {
	mu sync.Mutex
	by map[tenant.ID]*redactor
}

// redactor returns what cleans texts of a tenant.
func (s *Service) redactor(ctx context.Context, id tenant.ID) (*redactor, error) {
	st, _, err := s.Tenants.Load(ctx, tenant.StreamOf(id))
	if err != nil {
		return nil, err
	}
	s.redactors.mu.Lock()
	defer s.redactors.mu.Unlock()
	if r := s.redactors.by[id]; r != nil && maps.Equal(r.versions, st.Secrets) {
		return r, nil
	}
	values, err := s.Vault.Values(ctx, string(id), slices.Sorted(maps.Keys(st.Secrets)))
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the vault does not answer; try again").Because(err)
	}
	if s.redactors.by == nil {
		s.redactors.by = map[tenant.ID]*redactor{}
	}
	r := newRedactor(st.Secrets, values)
	s.redactors.by[id] = r
	return r, nil
}

func (s *Service) clean2(ctx context.Context, who Caller, a, b string) (string, string, error) {
	r, err := s.redactor(ctx, who.Tenant)
	if err != nil {
		return "", "", err
	}
	return r.clean(a), r.clean(b), nil
}
