package app

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// seals signs what browsers keep for us. What is signed for one purpose is worth nothing
// for another.
type seals struct{ key []byte }

// tag is the signature of a text for a purpose.
func (s seals) tag(purpose, text string) string {
	h := hmac.New(sha256.New, s.key)
	fmt.Fprintf(h, "%d:%s%s", len(purpose), purpose, text)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// holds says whether tag is the signature of text, in a time that tells nothing.
func (s seals) holds(purpose, text, tag string) bool {
	return hmac.Equal([]byte(s.tag(purpose, text)), []byte(tag))
}

// seal writes a value down, signed. It is not secret.
func (s seals) seal(purpose string, v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	return text + "." + s.tag(purpose, text), nil
}

// unseal reads what seal wrote, and nothing else.
func (s seals) unseal(purpose, sealed string, v any) bool {
	text, tag, ok := strings.Cut(sealed, ".")
	if !ok || !s.holds(purpose, text, tag) {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && json.Unmarshal(raw, v) == nil
}
