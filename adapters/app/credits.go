package app

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// usageDays is how far back the page of credits looks.
const usageDays = 30

type creditsView struct {
	*visit
	Balance   string
	Negative  bool
	Owed      string
	Buckets   []bucketRow
	Kinds     []kindColumn
	Days      []dayRow // newest first
	Boxes     []boxUsage
	Used      string // over all days
	Cost      string
	Months    []string // of statements
	PlotReady bool
	Low       bool
	Exhausted bool
}

type bucketRow struct {
	Source  string
	Left    string
	Granted string
	Share   int // of 100
	At      stamp
	Expires *stamp
	In      string // how long until then
}

type kindColumn struct {
	Name   string
	Series int
}

type dayRow struct {
	Day   string // 2006-01-02
	Label string
	Cells []amount
	Sum   string
}

type amount struct{ Exact, Text string }

type boxUsage struct {
	ID    string
	Name  string
	Known bool
	Used  string
	Cost  string
	Time  string
	Calls int64
	Share int // of 100, of the one that used most
}

func (a *App) creditsPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	return a.plain(w, r, v, a.credits)
}

func (a *App) credits(r *http.Request, v *visit) (page, error) {
	st, err := a.Control.Balance(r.Context(), v.who, control.Moment{})
	if err != nil {
		return page{}, err
	}
	view := &creditsView{
		visit: v, Balance: credits(st.Available(v.now)), Negative: st.Available(v.now) < 0, Low: st.Low && !st.Exhausted, Exhausted: st.Exhausted,
		PlotReady: a.assets.of("plot.js") != "",
	}
	if st.Owed > 0 {
		view.Owed = credits(st.Owed)
	}
	for _, b := range st.Buckets {
		view.Buckets = append(view.Buckets, v.bucket(b))
	}
	if err := a.usage(r, v, view); err != nil {
		return page{}, err
	}
	for month := v.now.UTC(); len(view.Months) < 6; month = month.AddDate(0, 0, -month.Day()) {
		view.Months = append(view.Months, month.Format("2006-01"))
		if month.Before(st.Since) {
			break
		}
	}
	p := page{Name: "credits", Title: v.say("credits.title"), Section: "credits", Body: view, Live: "/credits/live", Regions: []string{"credits.balance", "credits.days", "credits.boxes"}}
	if view.PlotReady {
		p.Scripts, p.Styles = []string{"plot.js"}, []string{"plot.css"}
	}
	return p, nil
}

func (v *visit) bucket(b credit.Bucket) bucketRow {
	row := bucketRow{Source: v.named("source", string(b.Source)), Left: credits(b.Left), Granted: credits(b.Granted), At: v.when(b.GrantedAt)}
	if b.Granted > 0 {
		row.Share = int(b.Left * 100 / b.Granted)
	}
	if b.ExpiresAt != nil {
		until := v.exact(*b.ExpiresAt)
		until.Text = b.ExpiresAt.In(v.Zone).Format(time.DateOnly)
		row.Expires, row.In = &until, v.span(b.ExpiresAt.Sub(v.now))
	}
	return row
}

// usage adds up what was used: by day for the plot, by box for the list.
func (a *App) usage(r *http.Request, v *visit, view *creditsView) error {
	today := v.now.UTC().Truncate(24 * time.Hour)
	first := today.AddDate(0, 0, 1-usageDays)
	q := control.UsageQuery{From: first, Until: today.AddDate(0, 0, 1)}
	days, err := a.Control.UsageSums(r.Context(), v.who, q, control.ByDay)
	if err != nil {
		return err
	}
	boxes, err := a.Control.UsageSums(r.Context(), v.who, q, control.ByBox)
	if err != nil {
		return err
	}
	rows, err := a.Control.ListBoxes(r.Context(), v.who, control.BoxQuery{Limit: control.MaxPage})
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, row := range rows {
		names[string(row.ID)] = title(row.Name, row.ID)
	}
	view.byDay(v, days, first, today)
	view.byBox(v, boxes, names)
	return nil
}

func (view *creditsView) byDay(v *visit, sums []control.UsageSum, first, today time.Time) {
	by, seen := map[string]map[pricing.Kind]money.Milli{}, map[pricing.Kind]bool{}
	var used money.Milli
	var cost money.MicroUSD
	for _, s := range sums {
		if by[s.Group] == nil {
			by[s.Group] = map[pricing.Kind]money.Milli{}
		}
		by[s.Group][s.Kind] += s.Credits
		seen[s.Kind] = true
		used, cost = used+s.Credits, cost+s.Cost
	}
	view.Used, view.Cost = credits(used), dollars(cost)
	var kinds []pricing.Kind
	for i, k := range pricing.Kinds {
		if seen[k] {
			kinds = append(kinds, k)
			view.Kinds = append(view.Kinds, kindColumn{v.named("usage", string(k)), i + 1})
		}
	}
	if len(kinds) == 0 {
		return
	}
	for day := today; !day.Before(first); day = day.AddDate(0, 0, -1) {
		row := dayRow{Day: day.Format("2006-01-02"), Label: day.Format("01-02")}
		var sum money.Milli
		for _, k := range kinds {
			n := by[row.Day][k]
			sum += n
			row.Cells = append(row.Cells, amount{n.String(), credits(n)})
		}
		row.Sum = credits(sum)
		view.Days = append(view.Days, row)
	}
}

// mostBoxes is how many boxes are listed by what they used.
const mostBoxes = 20

func (view *creditsView) byBox(v *visit, sums []control.UsageSum, names map[string]string) {
	type total struct {
		credits money.Milli
		cost    money.MicroUSD
		seconds int64
		calls   int64
	}
	by := map[string]*total{}
	for _, s := range sums {
		t := by[s.Group]
		if t == nil {
			t = &total{}
			by[s.Group] = t
		}
		t.credits, t.cost = t.credits+s.Credits, t.cost+s.Cost
		if s.Kind == pricing.Box {
			t.seconds += s.Quantity
		} else {
			t.calls += s.Events
		}
	}
	ids := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b].credits, by[a].credits), cmp.Compare(a, b))
	})
	for _, id := range ids[:min(len(ids), mostBoxes)] {
		t, most := by[id], by[ids[0]].credits
		row := boxUsage{ID: id, Name: names[id], Used: credits(t.credits), Cost: dollars(t.cost), Time: v.span(time.Duration(t.seconds) * time.Second), Calls: t.calls}
		if row.Known = row.Name != ""; !row.Known {
			row.Name = title("", box.ID(id))
		}
		if most > 0 {
			row.Share = int(t.credits * 100 / most)
		}
		view.Boxes = append(view.Boxes, row)
	}
}
