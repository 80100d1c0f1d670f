package clickhouse

import "context"

// maxPasses bounds how often a rebuild goes on catching up before it shows itself, where
// events arrive about as fast as they are written.
const maxPasses = 8

// Rebuild builds a new generation from the first event, beside the live one, and then puts it in
// its place: readers have the old rows until then. One that was interrupted goes on where it
// stopped. Other processes may keep, read and rebuild the same database meanwhile.
func (u *Usage) Rebuild(ctx context.Context) error {
	_, err := u.build(ctx)
	return err
}

func (u *Usage) build(ctx context.Context) (table, error) {
	live, t, err := u.survey(ctx)
	if err != nil {
		return t, err
	}
	if live.layout > layout {
		_, err := u.usable(ctx, live)
		return live, err
	}
	goesOn, err := u.usable(ctx, t)
	if err != nil {
		return t, err
	}
	if !goesOn {
		if t, err = u.begin(ctx, live, t); err != nil {
			return t, err
		}
	}
	if err := u.fill(ctx, &t); isGone(err) {
		// A generation that was begun later is live already: that is what was wanted.
		if live, _, again := u.survey(ctx); again == nil && live.generation > t.generation {
			return live, nil
		}
		return t, err
	} else if err != nil {
		return t, err
	}
	return u.publish(ctx, t)
}

// fill takes a generation to the end of the ledger.
func (u *Usage) fill(ctx context.Context, t *table) error {
	f := u.feeder(*t)
	for range maxPasses {
		n, err := f.pass(ctx)
		if err != nil {
			return err
		}
		if n <= u.Batch {
			break
		}
	}
	if f.seen.Position > f.into.saved.Position {
		if err := f.save(ctx, f.seen); err != nil {
			return err
		}
	}
	*t = f.into
	return nil
}
