package rest

import (
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

func (s *server) listSecrets(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	names, err := s.Control.SecretNames(r.Context(), who)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Secrets []string `json:"secrets"`
	}{append([]string{}, names...)})
}

// setSecret takes {"value": "…"} where the body says it is application/json, and else
// the body itself, byte for byte, so that a key file can be sent as it is.
func (s *server) setSecret(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	value, err := secretValue(w, r)
	if err != nil {
		return err
	}
	if err := s.Control.SetSecret(r.Context(), who, chi.URLParam(r, "name"), value); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}

func secretValue(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		var body struct {
			Value string `json:"value"`
		}
		err := readJSON(w, r, &body)
		return []byte(body.Value), err
	}
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, control.MaxSecret))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fault.New(fault.TooLarge, "a secret has at most %d bytes", control.MaxSecret)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "the body ended early; send the secret again").Because(err)
	}
	return value, nil
}

func (s *server) removeSecret(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	if err := s.Control.RemoveSecret(r.Context(), who, chi.URLParam(r, "name")); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}
