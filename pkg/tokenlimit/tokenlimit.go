// Package tokenlimit reads bounds of tokens as people write them.
package tokenlimit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scales are the factors of the letters behind a number.
var scales = map[byte]float64{'k': 1e3, 'm': 1e6, 'b': 1e9}

// Parse reads `500000`, `500k`, `output:1m` or `(input*0.1)+output:1m`: a whole number from 0 to 2^53, optionally with
// k, m or b in either case (thousands, millions, thousands of millions), optionally after a formula and a colon, which
// defines what counts. The formula is returned unchanged, except that `All` and `Output` become lower case; without one
// it is empty, and all tokens count.
func Parse(text string) (tokens int64, formula string, err error) {
	number := strings.TrimSpace(text)
	if at := strings.LastIndexByte(number, ':'); at >= 0 {
		formula, number = strings.TrimSpace(number[:at]), strings.TrimSpace(number[at+1:])
		if formula == "" {
			return 0, "", fmt.Errorf("“%s” is no bound of tokens: there is nothing before the colon; write one like output:1m", text)
		}
		if lower := strings.ToLower(formula); lower == "all" || lower == "output" {
			formula = lower
		}
	}
	scale := 1.0
	number = strings.ToLower(number)
	if last := len(number) - 1; last > 0 && scales[number[last]] > 0 {
		scale, number = scales[number[last]], strings.TrimSpace(number[:last])
	}
	number = strings.ReplaceAll(number, "_", "")
	if strings.Trim(number, "0123456789.") != "" {
		number = "" // no exponents, no hexadecimal numbers
	}
	n, err := strconv.ParseFloat(number, 64)
	n *= scale
	if whole := math.Round(n); math.Abs(n-whole) < 1e-6 {
		n = whole // 1.1k is 1100
	}
	if err != nil || !(n >= 0 && n <= 1<<53) || n != math.Trunc(n) {
		return 0, "", fmt.Errorf("“%s” is no number of tokens; write one like 500000, 500k or output:1m", text)
	}
	return int64(n), formula, nil
}
