package boxd

import (
	"cmp"
	"net/http"
	"os"
	"slices"
	"syscall"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// configure takes over a configuration newer than the one in force. A box restored from
// another's snapshot gets a new id, and then any revision is new.
func (a *Agent) configure(w http.ResponseWriter, r *http.Request) {
	var c protocol.Config
	if !decode(w, r, &c) {
		return
	}
	if err := a.adopt(c); err != nil {
		refuse(w, err)
		return
	}
	answer(w, a.healthNow())
}

func (a *Agent) adopt(c protocol.Config) error {
	if c.Revision < 1 {
		return protocol.Errorf(protocol.Invalid, "a configuration needs a revision of 1 or more, not %d", c.Revision)
	}
	if err := checkEnv(c.Env); err != nil {
		return err
	}
	// One at a time, from the comparison to the end: a slow older one must not overtake.
	a.adopting.Lock()
	defer a.adopting.Unlock()
	a.mu.Lock()
	old := a.config
	a.mu.Unlock()
	if c.BoxID == old.BoxID && c.Revision <= old.Revision {
		return nil
	}
	if err := a.wires.Apply(c.Services, c.ExternalBaseURL); err != nil {
		return err
	}
	if c.BoxID == old.BoxID {
		c.Hostname = cmp.Or(c.Hostname, old.Hostname)
		if c.Env == nil {
			c.Env = old.Env
		}
	}
	a.rename(c.Hostname)
	c.Services = slices.Clone(c.Services)
	a.mu.Lock()
	a.config = c
	a.mu.Unlock()
	return nil
}

// rename sets the host name when it is ours to set. Where the box may not, the driver gave
// it one at boot.
func (a *Agent) rename(name string) {
	if !a.opts.Init || name == "" {
		return
	}
	if now, err := os.Hostname(); err == nil && now == name {
		return
	}
	_ = syscall.Sethostname([]byte(name))
}
