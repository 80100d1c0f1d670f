package rest

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/control"
)

func (s *server) listKeys(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	keys, err := s.Control.Keys(r.Context(), who)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Keys []control.Key `json:"keys"`
	}{keys})
}

// issueKey shows the key once, here.
func (s *server) issueKey(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := readJSON(w, r, &body); err != nil {
		return err
	}
	key, err := s.Control.IssueKey(r.Context(), who, body.Name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, key)
}

func (s *server) revokeKey(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	if err := s.Control.RevokeKey(r.Context(), who, chi.URLParam(r, "id")); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}
