package vault

// BeforeRename runs f at the moment when a new value is on disk but not yet in place.
func (v *Vault) BeforeRename(f func() error) {
	rename := v.rename
	v.rename = func(from, to string) error {
		if err := f(); err != nil {
			return err
		}
		return rename(from, to)
	}
}
