package control

import (
	"context"
	"maps"
	"slices"

	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// MaxSecret bounds a value: it becomes an environment variable.
const MaxSecret = 64 << 10

// SecretNames lists the names of the caller's secrets, in order.
func (s *Service) SecretNames(ctx context.Context, who Caller) ([]string, error) {
	st, _, err := s.Tenants.Load(ctx, tenant.StreamOf(who.Tenant))
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(st.Secrets)), nil
}

// SetSecret keeps a value in the vault and its name on the ledger. The value comes
// first: a name without a value would break a start, a value without a name harms nobody.
func (s *Service) SetSecret(ctx context.Context, who Caller, name string, value []byte) error {
	if err := tenant.CheckSecretName(name); err != nil {
		return err
	}
	switch {
	case len(value) == 0:
		return fault.New(fault.Invalid, "the value is empty; use DELETE to remove a secret")
	case len(value) > MaxSecret:
		return fault.New(fault.TooLarge, "a secret has at most %d bytes", MaxSecret)
	case slices.Contains(value, 0):
		return fault.New(fault.Invalid, "a secret becomes an environment variable and cannot hold a zero byte")
	}
	if err := s.Vault.Set(ctx, string(who.Tenant), name, value); err != nil {
		return fault.New(fault.Unavailable, "the vault could not keep the secret; try again").Because(err)
	}
	_, err := s.tenant(ctx, who, tenant.SetSecret{Name: name, Version: s.NewID(), At: s.Now()})
	return err
}

// RemoveSecret forgets a secret. Boxes that were started with it keep it in their environment.
func (s *Service) RemoveSecret(ctx context.Context, who Caller, name string) error {
	if _, err := s.tenant(ctx, who, tenant.RemoveSecret{Name: name, At: s.Now()}); err != nil {
		return err
	}
	if err := s.Vault.Remove(ctx, string(who.Tenant), name); err != nil {
		return fault.New(fault.Unavailable, "the name is gone, but the vault still keeps the value; remove it again").Because(err)
	}
	return nil
}
