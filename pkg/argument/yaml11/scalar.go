package yaml11

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Patterns of plain scalars, from https://yaml.org/type/bool.html, int.html, float.html and null.html.
var (
	truePattern  = regexp.MustCompile(`^(?:yes|Yes|YES|true|True|TRUE|on|On|ON)$`)
	falsePattern = regexp.MustCompile(`^(?:no|No|NO|false|False|FALSE|off|Off|OFF)$`)
	nullPattern  = regexp.MustCompile(`^(?:~|null|Null|NULL|)$`)
	intPattern   = regexp.MustCompile(`^[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	floatPattern = regexp.MustCompile(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)$`)
)

// plain reports whether n is written bare, so that its text decides its type.
func plain(n *yaml.Node) bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Style&(quoted|yaml.TaggedStyle) == 0
}

// scalar returns the JSON value of a scalar node.
func scalar(n *yaml.Node) ([]byte, error) {
	if n.Style&yaml.TaggedStyle == 0 {
		if !plain(n) {
			return quote(n.Value), nil
		}
		if n.Value == "=" || n.Value == "<<" { // signs of a default value and of a merge, which are no values themselves
			return nil, fmt.Errorf("line %d: %s is no value", n.Line, n.Value)
		}
		return resolve(n.Value), nil
	}
	switch n.ShortTag() {
	case "!!str", "!!timestamp", "!!binary":
		return quote(n.Value), nil
	case "!!bool", "!!int", "!!float":
		return resolve(n.Value), nil
	case "!!null":
		return []byte("null"), nil
	default:
		return nil, unknownTag(n)
	}
}

// resolve returns the JSON value of plain text.
func resolve(text string) []byte {
	switch {
	case nullPattern.MatchString(text):
		return []byte("null")
	case truePattern.MatchString(text):
		return []byte("true")
	case falsePattern.MatchString(text):
		return []byte("false")
	case intPattern.MatchString(text):
		return integer(text)
	case floatPattern.MatchString(text):
		return float(text)
	default:
		return quote(text)
	}
}

// integer returns the decimal form of text that matches intPattern.
func integer(text string) []byte {
	digits := strings.ReplaceAll(text, "_", "")
	negative := strings.HasPrefix(digits, "-")
	digits = strings.TrimLeft(digits, "+-")
	base := 10
	switch {
	case strings.HasPrefix(digits, "0b"):
		digits, base = digits[2:], 2
	case strings.HasPrefix(digits, "0x"):
		digits, base = digits[2:], 16
	case strings.HasPrefix(digits, "0") && len(digits) > 1:
		digits, base = digits[1:], 8
	}
	switch {
	case digits == "": // only underscores after the prefix
		return quote(text)
	case base == 10 && !strings.Contains(digits, ":"): // They are in their decimal form, without leading zeros.
		if negative && digits != "0" {
			digits = "-" + digits
		}
		return []byte(digits)
	}
	value := sexagesimal(strings.Split(digits, ":"), base)
	if negative {
		value.Neg(value)
	}
	return value.Append(nil, 10)
}

// sexagesimal returns the number whose digits to the base 60 are numbers to a base themselves; one is that number.
func sexagesimal(parts []string, base int) *big.Int {
	if len(parts) == 1 {
		return number(parts[0], base)
	}
	middle := len(parts) / 2
	return joined(sexagesimal(parts[:middle], base), sexagesimal(parts[middle:], base), 60, len(parts)-middle)
}

// undivided is how many digits are read at once: the time that it takes grows with the square of their count.
const undivided = 1000

// number returns the number that digits are to a base.
func number(digits string, base int) *big.Int {
	if len(digits) <= undivided {
		value, _ := new(big.Int).SetString(digits, base) // The pattern has checked them.
		return value
	}
	middle := len(digits) / 2
	return joined(number(digits[:middle], base), number(digits[middle:], base), base, len(digits)-middle)
}

// joined returns the number of the upper and the lower digits, of which there are count.
func joined(upper, lower *big.Int, base, count int) *big.Int {
	scale := new(big.Int).Exp(big.NewInt(int64(base)), big.NewInt(int64(count)), nil)
	return upper.Mul(upper, scale).Add(upper, lower)
}

// float returns the JSON form of text that matches floatPattern; a value beyond the range of a float stays text.
func float(text string) []byte {
	digits := strings.ReplaceAll(text, "_", "")
	negative := strings.HasPrefix(digits, "-")
	value := 0.0
	for part := range strings.SplitSeq(strings.TrimLeft(digits, "+-"), ":") {
		n, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return quote(text)
		}
		value = value*60 + n
	}
	if math.IsInf(value, 0) {
		return quote(text)
	}
	if negative {
		value = -value
	}
	out := strconv.AppendFloat(nil, value, 'g', -1, 64)
	if !strings.ContainsAny(string(out), ".e") {
		out = append(out, ".0"...)
	}
	return out
}
