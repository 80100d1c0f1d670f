package rest

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/custody"
	"parallelsandbox/domain/fault"
)

// Screen shows the display of a box over a WebSocket. An error was not answered yet.
type Screen interface {
	Serve(w http.ResponseWriter, r *http.Request, who control.Caller, id box.ID, seat string) error
}

// SeatHeader carries the token of a seat beside the API key.
const SeatHeader = "Psbx-Seat"

func (s *server) screencast(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	return s.Screen.Serve(w, r, who, boxOf(r), r.Header.Get(SeatHeader))
}

func (s *server) input(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	var body struct {
		Actions []control.Action `json:"actions"`
	}
	if err := readJSON(w, r, &body); err != nil {
		return err
	}
	if err := s.Control.Input(r.Context(), who, boxOf(r), r.Header.Get(SeatHeader), body.Actions); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}

type shotBody struct {
	URL       string    `json:"url"`
	Bytes     int64     `json:"bytes"`
	ExpiresAt time.Time `json:"expiresAt"`
}

func (s *server) takeShot(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	var body struct {
		Target string `json:"target"`
	}
	if err := readJSON(w, r, &body); err != nil {
		return err
	}
	if body.Target == "" {
		body.Target = control.ScreenTarget
	}
	made, err := s.Control.Shot(r.Context(), who, boxOf(r), body.Target)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, shotBody{made.URL, made.Bytes, made.ExpiresAt})
}

func (s *server) listRecordings(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	rows, err := s.Control.ListRecordings(r.Context(), who, boxOf(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Recordings []control.RecordingRow `json:"recordings"`
	}{rows})
}

func (s *server) getCustody(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	records, err := s.Control.Custody(r.Context(), who, boxOf(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Takeovers []custody.Record `json:"takeovers"`
	}{records})
}

func (s *server) listTakeovers(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "state", "limit")
	ask := control.TakeoverQuery{Limit: pageSize(q)}
	switch q.Get("state") {
	case "":
	case "open":
		ask.Open = true
	default:
		q.refuse(`state is "open", or left out for all`)
	}
	if q.err != nil {
		return q.err
	}
	rows, err := s.Control.ListTakeovers(r.Context(), who, ask)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Takeovers []control.TakeoverRow `json:"takeovers"`
	}{rows})
}

func (s *server) returnTakeover(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	var body struct {
		Message  string `json:"message"`
		Declined bool   `json:"declined"`
	}
	if err := readJSON(w, r, &body); err != nil {
		return err
	}
	if err := s.Control.ReturnTakeover(r.Context(), who, chi.URLParam(r, "id"), body.Message, body.Declined); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}

type seatBody struct {
	Box       box.ID    `json:"box"`
	Takeover  string    `json:"takeover"`
	Seat      string    `json:"seat"` // what goes into SeatHeader
	ExpiresAt time.Time `json:"expiresAt"`
}

func (s *server) joinTakeover(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	var body struct {
		Person string `json:"person"`
	}
	if err := readJSON(w, r, &body); err != nil {
		return err
	}
	if len(body.Person) > box.MaxText {
		return fault.New(fault.Invalid, "person has at most %d bytes", box.MaxText)
	}
	who.Person = body.Person
	seat, err := s.Control.JoinTakeover(r.Context(), who, chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, seatBody{seat.Box, seat.Takeover, seat.Token, seat.Expires})
}
