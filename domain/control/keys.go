package control

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// KeyPrefix begins every API key, so that one is recognised where it should not be.
const KeyPrefix = "psbx_"

// ErrKey refuses a call without a key that is ours.
var ErrKey = fault.New(fault.Unauthenticated, "this needs an API key: send the header Authorization: Bearer psbx_…; psbx key new makes one")

// Key is an API key as its owner sees it. Secret is set once, when it is issued.
type Key struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Secret   string    `json:"key,omitempty"`
	IssuedAt time.Time `json:"issuedAt"`
	Revoked  bool      `json:"revoked"`
}

// Authenticate finds whose key this is. The read model finds the tenant; its stream
// says whether the key still holds, so a revoked key is refused at once.
func (s *Service) Authenticate(ctx context.Context, secret string) (Caller, error) {
	if !strings.HasPrefix(secret, KeyPrefix) {
		return Caller{}, ErrKey
	}
	hash := hashed(secret)
	row, ok, err := s.Views.KeyByHash(ctx, hash)
	if err == nil && !ok {
		// It may have been issued a moment ago.
		if err = s.caughtUp(ctx); err == nil {
			row, ok, err = s.Views.KeyByHash(ctx, hash)
		}
	}
	if err != nil {
		return Caller{}, err
	}
	if !ok {
		return Caller{}, ErrKey
	}
	st, _, err := s.Tenants.Load(ctx, tenant.StreamOf(tenant.ID(row.Tenant)))
	if err != nil {
		return Caller{}, err
	}
	if k, ok := st.Keys[row.Key]; !ok || k.Revoked {
		return Caller{}, ErrKey
	}
	return Caller{Tenant: st.ID, Key: row.Key}, nil
}

// Register makes a tenant.
func (s *Service) Register(ctx context.Context, id tenant.ID, name string, plan tenant.Plan) error {
	_, err := s.tenant(ctx, Caller{Tenant: id}, tenant.Register{Tenant: id, Name: name, Plan: plan, At: s.Now()})
	return err
}

// IssueKey makes an API key. Its secret is returned here and kept nowhere.
func (s *Service) IssueKey(ctx context.Context, who Caller, name string) (Key, error) {
	if name == "" || len(name) > box.MaxText {
		return Key{}, fault.New(fault.Invalid, "a key has a name of 1 to %d bytes", box.MaxText)
	}
	k := Key{ID: s.NewID(), Name: name, Secret: KeyPrefix + s.Token(160), IssuedAt: s.Now()}
	_, err := s.tenant(ctx, who, tenant.IssueKey{Key: k.ID, Name: name, Hash: hashed(k.Secret), At: k.IssuedAt})
	return k, err
}

// RevokeKey ends a key at once.
func (s *Service) RevokeKey(ctx context.Context, who Caller, id string) error {
	_, err := s.tenant(ctx, who, tenant.RevokeKey{Key: id, At: s.Now()})
	return err
}

// Keys lists the caller's keys, newest first, without secrets.
func (s *Service) Keys(ctx context.Context, who Caller) ([]Key, error) {
	st, _, err := s.Tenants.Load(ctx, tenant.StreamOf(who.Tenant))
	if err != nil {
		return nil, err
	}
	return keysOf(st), nil
}

func keysOf(st tenant.State) []Key {
	keys := make([]Key, 0, len(st.Keys))
	for id, k := range st.Keys {
		keys = append(keys, Key{ID: id, Name: k.Name, IssuedAt: k.IssuedAt, Revoked: k.Revoked})
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(b.IssuedAt.Compare(a.IssuedAt), cmp.Compare(a.ID, b.ID))
	})
	return keys
}
