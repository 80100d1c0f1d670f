package money_test

import (
	"math/big"
	"testing"

	"parallelsandbox/domain/money"
)

func TestScaleRoundsHalfUp(t *testing.T) {
	for _, c := range []struct{ price, quantity, per, want int64 }{
		{0, 60, 3600, 0}, {60000, 60, 3600, 1000}, {1, 1, 2, 1}, {1, 1, 3, 0}, {2, 1, 3, 1}, {1, 5, 2, 3}, {7, 0, 9, 0},
		{money.Limit, 2_678_400, 3600, 744 * money.Limit},
	} {
		if got := money.Scale(c.price, c.quantity, c.per); got != c.want {
			t.Errorf("%d × %d ÷ %d = %d, not %d", c.price, c.quantity, c.per, got, c.want)
		}
	}
}

func TestScaleRefusesWhatIsNoPrice(t *testing.T) {
	for _, c := range [][3]int64{{-1, 1, 1}, {1, -1, 1}, {1, 1, 0}, {1, 1, -1}, {1 << 62, 1 << 62, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v is scaled", c)
				}
			}()
			money.Scale(c[0], c[1], c[2])
		}()
	}
}

// What floats make of these, integers do not.
func TestParseAndPrint(t *testing.T) {
	for in, want := range map[string]string{
		"17.9699999999999988": "17.97", "14.28444999": "14.284", "0.07": "0.07", "-0.0005": "-0.001", "0.0004999": "0",
		"12": "12", "12.0": "12", "1000000000": "1000000000", "-3.25": "-3.25", ".5": "0.5",
	} {
		got, err := money.ParseCredits(in)
		if err != nil || got.String() != want {
			t.Errorf("%s is read as %s, not %s (%v)", in, got, want, err)
		}
	}
	for _, in := range []string{"", "x", "1e3", "1/3", "0x1", "NaN", "Inf", "1,5", "1000000000.001", "9999999999999999999999", "1_0"} {
		if got, err := money.ParseCredits(in); err == nil {
			t.Errorf("%q is read as %s", in, got)
		}
	}
	if u, err := money.ParseUSD("0.0016675"); err != nil || u != 1668 || u.String() != "0.001668" {
		t.Errorf("dollars: %d, %v", u, err)
	}
}

// Two hundred small ones and eighty-one rounded lines add up exactly.
func TestSumsAreExact(t *testing.T) {
	seven, _ := money.ParseCredits("0.07")
	var sum money.Milli
	for range 200 {
		sum += seven
	}
	if sum != 14*money.Credit {
		t.Errorf("200 × 0.07 = %s", sum)
	}
}

func FuzzScale(f *testing.F) {
	f.Add(int64(60000), int64(17), int64(3600))
	f.Fuzz(func(t *testing.T, price, quantity, per int64) {
		if price < 0 || price > money.Limit || quantity < 0 || quantity > 1_000_000 || per <= 0 {
			return
		}
		got := big.NewInt(money.Scale(price, quantity, per))
		exact := new(big.Int).Mul(big.NewInt(price), big.NewInt(quantity))
		off := got.Mul(got, big.NewInt(per)).Sub(got, exact)
		if off.Lsh(off.Abs(off), 1).Cmp(big.NewInt(per)) > 0 {
			t.Errorf("%d × %d ÷ %d is off by more than a half", price, quantity, per)
		}
	})
}

func FuzzParseCredits(f *testing.F) {
	f.Add("17.9699999999999988")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := money.ParseCredits(s)
		if err != nil {
			return
		}
		again, err := money.ParseCredits(m.String())
		if err != nil || again != m {
			t.Errorf("%q is %s, which is read as %s (%v)", s, m, again, err)
		}
	})
}
