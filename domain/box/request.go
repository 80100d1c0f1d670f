package box

import (
	"net/url"
	"regexp"
	"strings"

	"parallelsandbox/domain/fault"
)

// Limits of a request. A service's scene host is "<service>--<id>", one DNS label of
// at most 63 characters, of which the id and the dashes take 22.
const (
	MaxServices       = 32
	MaxServiceName    = 41
	MaxIdleTimeoutMin = 100_000
	MaxText           = 200 // bytes of a name or a note
)

var (
	labelRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	idRE    = regexp.MustCompile(`^[a-z2-7]{20}$`)
)

// ValidID says whether s has the form of a box id.
func ValidID(s string) bool { return idRE.MatchString(s) }

var errID = fault.New(fault.Invalid, "a box id is 20 characters of a-z and 2-7")

// CheckRequest refuses what can never become a box.
func CheckRequest(c Request) error {
	if !ValidID(string(c.Box)) {
		return errID
	}
	if err := checkServices(c.Services); err != nil {
		return err
	}
	if err := CheckBaseURL(c.ExternalBaseURL); err != nil {
		return err
	}
	if c.IdleTimeoutMin < 0 || c.IdleTimeoutMin > MaxIdleTimeoutMin {
		return fault.New(fault.Invalid, "idleTimeoutMin must be between 1 and %d whole minutes; leave it out for a box that runs until it is stopped", MaxIdleTimeoutMin)
	}
	if len(c.Name) > MaxText || len(c.Note) > MaxText {
		return fault.New(fault.Invalid, "name and note have at most %d bytes", MaxText)
	}
	return nil
}

func checkServices(services []Service) error {
	if len(services) > MaxServices {
		return fault.New(fault.Invalid, "a box has at most %d services", MaxServices)
	}
	names, ports := map[string]bool{}, map[int]string{}
	for _, s := range services {
		switch {
		case len(s.Name) > MaxServiceName || !labelRE.MatchString(s.Name):
			return fault.New(fault.Invalid, "service name %q must be a DNS label: 1 to %d characters of a-z, 0-9 and -, not at the ends a -", s.Name, MaxServiceName)
		case s.Name == "localhost" || strings.Contains(s.Name, "--"):
			return fault.New(fault.Invalid, "service name %q is reserved; localhost and names with -- cannot be used", s.Name)
		case names[s.Name]:
			return fault.New(fault.Invalid, "service name %q is given twice", s.Name)
		case s.Port < 1 || s.Port > 65535:
			return fault.New(fault.Invalid, "port of service %q must be between 1 and 65535, not %d", s.Name, s.Port)
		case ports[s.Port] != "":
			return fault.New(fault.Invalid, "services %q and %q both use port %d; give each its own", ports[s.Port], s.Name, s.Port)
		}
		names[s.Name], ports[s.Port] = true, s.Name
	}
	return nil
}

// CheckBaseURL refuses an external base URL that requests could not be forwarded to; empty is fine.
func CheckBaseURL(raw string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fault.New(fault.Invalid, "externalBaseUrl must be an http or https URL with a host and without credentials, query or fragment, such as https://staging.example.com")
	}
	return nil
}
