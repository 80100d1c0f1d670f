//go:build minimal

package bench

import (
	"context"
	"errors"
)

func usageRows(context.Context, *Bench) ([]Row, error) {
	return nil, errors.New("this psbx was built without ClickHouse; make build makes one that has it")
}
