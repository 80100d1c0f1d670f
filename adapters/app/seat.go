package app

import (
	"net/http"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

type linkView struct {
	*visit
	ID        box.ID
	Name      string
	Asked     bool   // an agent waits for a person
	Note      string // and this is what it asks for
	Held      string // who is at the screen already
	Nonce     string
	Expires   string
	Signature string
}

func linkOf(r *http.Request, get func(string) string) control.TakeoverLink {
	return control.TakeoverLink{Box: boxOf(r), Nonce: get("nonce"), Expires: get("expires"), Signature: get("signature")}
}

// takeoverLink says what a link is for. It burns nothing: programs that look at links before
// people do must not use them up.
func (a *App) takeoverLink(w http.ResponseWriter, r *http.Request, v *visit) error {
	link := linkOf(r, r.URL.Query().Get)
	st, err := a.Control.CheckTakeoverLink(r.Context(), link)
	if err != nil {
		return err
	}
	view := linkView{
		visit: v, ID: st.ID, Name: title(st.Name, st.ID), Asked: st.Takeover.By == box.Agent, Note: st.Takeover.Note, Nonce: link.Nonce, Expires: link.Expires, Signature: link.Signature,
	}
	if st.Takeover.Seat != "" {
		view.Held = v.person(st.Takeover.Person)
	}
	return a.show(w, r, v, http.StatusOK, page{Name: "link", Title: view.Name, Body: view})
}

// openTakeover gives the seat at the screen to whoever pressed the button of the link.
func (a *App) openTakeover(w http.ResponseWriter, r *http.Request, v *visit) error {
	seat, err := a.Control.OpenTakeover(r.Context(), linkOf(r, r.PostForm.Get))
	if err != nil {
		return err
	}
	a.sit(w, r, seat)
	return nil
}

// takeSeat gives it to somebody who is signed in.
func (a *App) takeSeat(w http.ResponseWriter, r *http.Request, v *visit) error {
	seat, err := a.Control.TakeSeat(r.Context(), v.who, boxOf(r))
	if err != nil {
		return err
	}
	a.sit(w, r, seat)
	return nil
}

func (a *App) sit(w http.ResponseWriter, r *http.Request, seat control.Seat) {
	path := "/boxes/" + string(seat.Box)
	a.give(w, seatCookie, seat.Token, path, max(seat.Expires.Sub(a.Control.Now()), time.Second))
	http.Redirect(w, r, path+"#screen", http.StatusSeeOther)
}

// returnBox hands the box back from its own page.
func (a *App) returnBox(w http.ResponseWriter, r *http.Request, v *visit) error {
	who, err := a.entitled(r, v)
	if err != nil {
		return err
	}
	takeover, path := r.PostForm.Get("takeover"), "/boxes/"+string(boxOf(r))
	if v.Session == nil && (v.Seat.Takeover == "" || v.Seat.Takeover != takeover) {
		return fault.New(fault.Conflict, "the takeover that you held is over") // by a link one answers for what one holds
	}
	note, err := a.answer(r, who, takeover)
	if err != nil {
		return err
	}
	if v.Seat != nil {
		a.take(w, seatCookie, path)
	}
	if v.Session == nil {
		path = "/" // nothing here is theirs any more
	}
	a.done(w, r, path, note)
	return nil
}

// screen is the display of a box, on a WebSocket. The keyboard comes with the seat.
func (a *App) screen(w http.ResponseWriter, r *http.Request, v *visit) error {
	if a.Screen == nil {
		return errNowhere
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return errForeign // cookies come along whoever opens a socket
	}
	who, err := a.entitled(r, v)
	if err != nil {
		return err
	}
	seat := ""
	if v.Seat != nil {
		seat = v.Seat.Token
	}
	return a.Screen.Serve(w, r, who, boxOf(r), seat)
}

// typeText types what was put together beside the screen: whole words, in any script, also
// from a phone.
func (a *App) typeText(w http.ResponseWriter, r *http.Request, v *visit) error {
	who, err := a.entitled(r, v)
	if err != nil {
		return err
	}
	if v.Seat == nil {
		return fault.New(fault.Locked, "only who holds the takeover can type; take the keyboard first")
	}
	text := strings.ReplaceAll(r.PostForm.Get("text"), "\r\n", "\n")
	if err := a.Control.Input(r.Context(), who, boxOf(r), v.Seat.Token, []control.Action{{Type: "text", Text: text}}); err != nil {
		return err
	}
	if r.Header.Get("X-Requested-With") != "" { // from the page's own script, which stays where it is
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	a.done(w, r, "/boxes/"+string(boxOf(r)), "typed")
	return nil
}

// leaveSeat gives the keyboard back without a word.
func (a *App) leaveSeat(w http.ResponseWriter, r *http.Request, v *visit) error {
	who, err := a.entitled(r, v)
	if err != nil {
		return err
	}
	path := "/boxes/" + string(boxOf(r))
	a.take(w, seatCookie, path)
	if v.Seat != nil {
		if err := a.Control.LeaveSeat(r.Context(), who, *v.Seat); err != nil {
			return err
		}
	}
	if v.Session == nil {
		path = "/"
	}
	a.done(w, r, path, "left")
	return nil
}
