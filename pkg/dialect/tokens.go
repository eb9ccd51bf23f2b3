package dialect

import (
	"encoding/json"
	"math"
	"strconv"
)

// Tokens is a number of tokens on the wire. Some servers write whole numbers with a fraction or an exponent, such as
// `3.0`; it takes those as integers. Other fractions are refused, as are values that are not numbers.
type Tokens int64

// UnmarshalJSON implements json.Unmarshaler. A null changes nothing.
func (t *Tokens) UnmarshalJSON(value []byte) error {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		*t = Tokens(n)
		return nil
	}
	var f float64
	if json.Unmarshal(value, &f) == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		if string(value) != "null" {
			*t = Tokens(f)
		}
		return nil
	}
	var n int64
	return json.Unmarshal(value, &n) // It fails, and says why.
}
