// Package money holds exact amounts of dollars and of credits.
//
// Every amount is an integer, and is stored as one; String is for people. Where a figure falls between two amounts it goes to the nearer
// one, and to the one further from zero when it lies in the middle: that is the one rounding
// rule, it is applied once to each usage line, and sums are never rounded.
package money

import (
	"fmt"
	"math/big"
	"math/bits"
	"strings"
)

// MicroUSD is an amount in millionths of a US dollar.
type MicroUSD int64

// Milli is an amount in thousandths of a credit.
type Milli int64

// Credit is one whole credit.
const Credit Milli = 1000

// Dollar is one whole US dollar.
const Dollar MicroUSD = 1_000_000

// Limit bounds any single amount and price, so that no product and no sum of a lifetime
// leaves 64 bits.
const Limit = 1_000_000_000_000

// Scale returns price × quantity ÷ per, rounded. None of them may be negative, and per not
// be zero. It panics when the result does not fit, which Limit rules out.
func Scale(price, quantity, per int64) int64 {
	if price < 0 || quantity < 0 || per <= 0 {
		panic(fmt.Sprintf("money: %d × %d ÷ %d", price, quantity, per))
	}
	hi, lo := bits.Mul64(uint64(price), uint64(quantity))
	lo, carry := bits.Add64(lo, uint64(per)/2, 0)
	whole, _ := bits.Div64(hi+carry, lo, uint64(per)) // panics on overflow
	return int64(whole)
}

// String is the exact decimal figure in credits, such as 12.345.
func (m Milli) String() string { return decimal(int64(m), 3) }

// String is the exact decimal figure in dollars, such as 0.001667.
func (u MicroUSD) String() string { return decimal(int64(u), 6) }

// decimal writes n with that many decimals, without zeros at the end.
func decimal(n int64, places int) string {
	digits := fmt.Sprintf("%0*d", places+1, magnitude(n))
	cut := len(digits) - places
	text := digits[:cut]
	if rest := strings.TrimRight(digits[cut:], "0"); rest != "" {
		text += "." + rest
	}
	if n < 0 {
		return "-" + text
	}
	return text
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// ParseCredits reads a decimal number of credits and rounds it to a thousandth.
func ParseCredits(s string) (Milli, error) {
	n, err := parse(s, int64(Credit))
	return Milli(n), err
}

// ParseUSD reads a decimal number of dollars and rounds it to a millionth.
func ParseUSD(s string) (MicroUSD, error) {
	n, err := parse(s, int64(Dollar))
	return MicroUSD(n), err
}

func parse(s string, unit int64) (int64, error) {
	const most = 40 // characters of a sensible figure
	r, ok := new(big.Rat).SetString(s)
	if !ok || len(s) > most || strings.ContainsAny(s, "/eExXpP_") {
		return 0, fmt.Errorf("money: %q is not a decimal number such as 12.5", s)
	}
	r.Mul(r, new(big.Rat).SetInt64(unit))
	num, den := new(big.Int).Abs(r.Num()), r.Denom()
	num.Add(num.Lsh(num, 1), den) // half away from zero: (2·num + den) ÷ (2·den)
	num.Quo(num, new(big.Int).Lsh(den, 1))
	if !num.IsInt64() || num.Int64() > Limit {
		return 0, fmt.Errorf("money: %s is more than can be booked", s)
	}
	n := num.Int64()
	if r.Sign() < 0 {
		n = -n
	}
	return n, nil
}
