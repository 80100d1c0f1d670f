package control

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// ErrLink is the one refusal of a link, whatever is wrong with it.
var ErrLink = fault.New(fault.Unauthenticated, "this link has expired or is not ours; ask for a new one")

// Links makes and checks the addresses the product hands out.
type Links struct {
	Secret    []byte // HMAC key, 32 bytes
	APIBase   string // such as http://localhost:7070
	AppBase   string
	SceneHost string // what follows "<id>." in the host of a scene, such as box.localhost:7070
	SceneHTTP string // scheme of a scene
}

// SignedLink is what a signed address carries. A link works while the clock is before
// Expires; from that second on it is refused.
type SignedLink struct {
	Key       string // blob key
	Name      string // file name offered for a download
	Expires   string // seconds since 1970, as written in the address
	Signature string
}

// Scene is the public address of a box's service; the first declared one has no name in it.
func (l *Links) Scene(id box.ID, service string) string {
	label := string(id)
	if service != "" {
		label = service + "--" + label
	}
	return l.SceneHTTP + "://" + label + "." + l.SceneHost
}

// SceneLabel reads the host of a request to a scene.
func (l *Links) SceneLabel(host string) (id box.ID, service string, ok bool) {
	label, ok := strings.CutSuffix(strings.ToLower(host), "."+l.SceneHost)
	if !ok {
		return "", "", false
	}
	if name, rest, named := strings.Cut(label, "--"); named {
		service, label = name, rest
	}
	return box.ID(label), service, box.ValidID(label)
}

// Download signs a link to a blob.
func (l *Links) Download(key, name string, until time.Time) string {
	exp := strconv.FormatInt(until.Unix(), 10)
	q := url.Values{"name": {name}, "expires": {exp}, "signature": {l.sign("download", key, name, exp)}}
	return l.APIBase + "/v1/" + key + "?" + q.Encode()
}

// CheckDownload refuses a link that is not ours, was changed, or has expired.
func (l *Links) CheckDownload(k SignedLink, now time.Time) error {
	return l.check(k, now, "download", k.Key, k.Name, k.Expires)
}

func (l *Links) check(k SignedLink, now time.Time, parts ...string) error {
	exp, err := strconv.ParseInt(k.Expires, 10, 64)
	if err != nil || exp <= 0 || now.Unix() >= exp || !hmac.Equal([]byte(l.sign(parts...)), []byte(k.Signature)) {
		return ErrLink
	}
	return nil
}

// sign covers the parts with their lengths, so that no two lists of parts sign alike.
func (l *Links) sign(parts ...string) string {
	h := hmac.New(sha256.New, l.Secret)
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
