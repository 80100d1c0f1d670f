package projections

import (
	"database/sql"
	"time"
)

// Moment reads a time that a read model keeps as nanoseconds since 1970, UTC.
func Moment(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

// MaybeMoment is Moment where there may be none yet.
func MaybeMoment(nanoseconds sql.NullInt64) *time.Time {
	if !nanoseconds.Valid {
		return nil
	}
	t := Moment(nanoseconds.Int64)
	return &t
}
