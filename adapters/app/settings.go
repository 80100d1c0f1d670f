package app

import (
	"net/http"
	"strconv"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// settingsView is the page of secrets, keys and the plan.
type settingsView struct {
	*visit
	Secrets []string
	Keys    []keyRow
	Fresh   *control.Key // just made: the one time its secret is seen
	Plan    string
	Slots   int
	Sells   bool
	Plans   []planRow
	MCPURL  string
	Notice  string
	Wrong   string // what was wrong with the form that was sent
	Field   string // and which form that was
}

type keyRow struct {
	ID, Name string
	Issued   stamp
	Revoked  bool
}

type planRow struct {
	Plan    string
	Name    string
	Slots   int
	Current bool
}

func (a *App) settingsPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	return a.showSettings(w, r, v, http.StatusOK, settingsView{})
}

func (a *App) showSettings(w http.ResponseWriter, r *http.Request, v *visit, status int, view settingsView) error {
	view.visit, view.Notice, view.MCPURL = v, notice(r, v), a.MCPURL
	var err error
	if view.Secrets, err = a.Control.SecretNames(r.Context(), v.who); err != nil {
		return err
	}
	keys, err := a.Control.Keys(r.Context(), v.who)
	if err != nil {
		return err
	}
	for _, k := range keys {
		view.Keys = append(view.Keys, keyRow{k.ID, k.Name, v.exact(k.IssuedAt), k.Revoked})
	}
	view.Plan, view.Slots, view.Sells = v.named("plan", string(v.Tenant.Plan)), v.Tenant.Plan.Slots(), a.Billing != nil && a.Billing.Payments.Ready() == nil
	for _, p := range []tenant.Plan{tenant.Free, tenant.Pro, tenant.Max} {
		view.Plans = append(view.Plans, planRow{string(p), v.named("plan", string(p)), p.Slots(), p == v.Tenant.Plan})
	}
	return a.show(w, r, v, status, page{Name: "settings", Title: v.say("settings.title"), Section: "settings", Body: view})
}

// mended shows the page again with what was wrong, where the person can mend it.
func (a *App) mended(w http.ResponseWriter, r *http.Request, v *visit, form string, err error) error {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.TooLarge, fault.Conflict, fault.Unavailable:
		return a.showSettings(w, r, v, http.StatusBadRequest, settingsView{Wrong: fault.Sentence(err), Field: form})
	}
	return err
}

func (a *App) setSecret(w http.ResponseWriter, r *http.Request, v *visit) error {
	if err := a.Control.SetSecret(r.Context(), v.who, r.PostForm.Get("name"), []byte(r.PostForm.Get("value"))); err != nil {
		return a.mended(w, r, v, "secret", err)
	}
	a.done(w, r, "/settings", "secret")
	return nil
}

func (a *App) removeSecret(w http.ResponseWriter, r *http.Request, v *visit) error {
	if err := a.Control.RemoveSecret(r.Context(), v.who, r.PostForm.Get("name")); err != nil {
		return a.mended(w, r, v, "secret", err)
	}
	a.done(w, r, "/settings", "unsecret")
	return nil
}

// issueKey answers with the page itself: the secret is in this one answer and nowhere else.
func (a *App) issueKey(w http.ResponseWriter, r *http.Request, v *visit) error {
	key, err := a.Control.IssueKey(r.Context(), v.who, r.PostForm.Get("name"))
	if err != nil {
		return a.mended(w, r, v, "key", err)
	}
	return a.showSettings(w, r, v, http.StatusOK, settingsView{Fresh: &key})
}

func (a *App) revokeKey(w http.ResponseWriter, r *http.Request, v *visit) error {
	if err := a.Control.RevokeKey(r.Context(), v.who, r.PostForm.Get("key")); err != nil {
		return a.mended(w, r, v, "key", err)
	}
	a.done(w, r, "/settings", "revoked")
	return nil
}

type payView struct {
	*visit
	Address string
	Cost    string
}

// buy leads to the page of the payment provider: by a link, since forms of the app are sent
// nowhere else.
func (a *App) buy(w http.ResponseWriter, r *http.Request, v *visit) error {
	if a.Billing == nil {
		return errNowhere
	}
	want := control.Purchase{Plan: tenant.Plan(r.PostForm.Get("plan"))}
	if n := r.PostForm.Get("credits"); n != "" {
		credits, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			credits = -1 // refused with the sentence that says what can be bought
		}
		want.Credits = credits
	}
	sale, err := a.Billing.Checkout(r.Context(), v.who, want)
	if err != nil {
		return a.mended(w, r, v, "plan", err)
	}
	view := payView{visit: v, Address: sale.Address}
	if sale.Cost > 0 {
		view.Cost = dollars(sale.Cost)
	}
	return a.show(w, r, v, http.StatusOK, page{Name: "pay", Title: v.say("pay.title"), Section: "settings", Body: view})
}

func (a *App) portal(w http.ResponseWriter, r *http.Request, v *visit) error {
	if a.Billing == nil {
		return errNowhere
	}
	address, err := a.Billing.Portal(r.Context(), v.who)
	if err != nil {
		return a.mended(w, r, v, "plan", err)
	}
	return a.show(w, r, v, http.StatusOK, page{Name: "pay", Title: v.say("pay.title"), Section: "settings", Body: payView{visit: v, Address: address}})
}
