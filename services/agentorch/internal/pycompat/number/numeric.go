package number

import (
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// fractions are the characters that are a number between 0 and 1 (Unicode blocks Latin-1 Supplement and Number Forms).
var fractions = map[rune]float64{
	'¼': 1. / 4, '½': 1. / 2, '¾': 3. / 4,
	'⅐': 1. / 7, '⅑': 1. / 9, '⅒': 1. / 10, '⅓': 1. / 3, '⅔': 2. / 3, '⅕': 1. / 5, '⅖': 2. / 5, '⅗': 3. / 5, '⅘': 4. / 5,
	'⅙': 1. / 6, '⅚': 5. / 6, '⅛': 1. / 8, '⅜': 3. / 8, '⅝': 5. / 8, '⅞': 7. / 8, '↉': 0, '⅟': 1,
}

// symbolRuns are characters other than decimal digits that are numbers by themselves: count characters from lo on,
// worth first, first+step, …. Digits may take part in a number of several characters. Source: the numeric values of the
// Unicode Character Database, for the blocks Latin-1 Supplement, Superscripts, Number Forms, Enclosed Alphanumerics,
// Dingbats and the CJK ones; numerals of historic scripts are left out.
var symbolRuns = []struct {
	lo          rune
	count       int
	first, step float64
	digit       bool
}{
	{'²', 2, 2, 1, true},
	{'¹', 1, 1, 0, true},
	{'⁰', 1, 0, 0, true},
	{'⁴', 6, 4, 1, true},
	{'₀', 10, 0, 1, true},
	{'Ⅰ', 12, 1, 1, false},
	{'Ⅼ', 1, 50, 0, false},
	{'Ⅽ', 1, 100, 0, false},
	{'Ⅾ', 1, 500, 0, false},
	{'Ⅿ', 1, 1000, 0, false},
	{'ⅰ', 12, 1, 1, false},
	{'ⅼ', 1, 50, 0, false},
	{'ⅽ', 1, 100, 0, false},
	{'ⅾ', 1, 500, 0, false},
	{'ⅿ', 1, 1000, 0, false},
	{'ↀ', 1, 1000, 0, false},
	{'ↁ', 1, 5000, 0, false},
	{'ↂ', 1, 10000, 0, false},
	{'ↅ', 1, 6, 0, false},
	{'ↆ', 1, 50, 0, false},
	{'ↇ', 1, 50000, 0, false},
	{'ↈ', 1, 100000, 0, false},
	{'①', 9, 1, 1, true},
	{'⑩', 11, 10, 1, false},
	{'⑴', 9, 1, 1, true},
	{'⑽', 11, 10, 1, false},
	{'⒈', 9, 1, 1, true},
	{'⒑', 11, 10, 1, false},
	{'⓪', 1, 0, 0, true},
	{'⓫', 10, 11, 1, false},
	{'⓵', 9, 1, 1, true},
	{'⓾', 1, 10, 0, false},
	{'⓿', 1, 0, 0, true},
	{'❶', 9, 1, 1, true},
	{'❿', 1, 10, 0, false},
	{'➀', 9, 1, 1, true},
	{'➉', 1, 10, 0, false},
	{'➊', 9, 1, 1, true},
	{'➓', 1, 10, 0, false},
	{'〡', 9, 1, 1, false},
	{'〸', 3, 10, 10, false},
	{'㆒', 4, 1, 1, false},
	{'㈠', 10, 1, 1, false},
	{'㉈', 8, 10, 10, false},
	{'㉑', 15, 21, 1, false},
	{'㊀', 10, 1, 1, false},
	{'㊱', 15, 36, 1, false},
}

// ideographs are the Chinese characters that are numbers by themselves, by value (Unihan kPrimaryNumeric,
// kAccountingNumeric, kOtherNumeric).
var ideographs = map[float64]string{
	0: "〇零\uf9b2", 1: "一壱壹幺弌", 2: "㒃二兩弍弐貮貳贰\uf978", 3: "三仨叁参參叄弎\uf96b", 4: "亖四肆", 5: "㐅㠪五伍", 6: "六陆陸\uf9d1\uf9d3", 7: "㭍七柒漆",
	8: "八捌", 9: "九廾玖", 10: "什十拾\uf973\uf9fd", 20: "卄廿", 30: "卅", 40: "卌", 100: "佰百陌", 1000: "仟千阡", 10000: "万萬", 1e8: "亿億", 1e12: "兆",
}

// numeric returns the value of a character that is a number by itself, a decimal digit of any script included.
func numeric(r rune) (float64, bool) {
	if d, ok := pytext.Digit(r); ok {
		return float64(d), true
	}
	if f, ok := fractions[r]; ok {
		return f, true
	}
	for _, run := range symbolRuns {
		if i := int(r - run.lo); 0 <= i && i < run.count {
			return run.first + float64(i)*run.step, true
		}
	}
	for value, members := range ideographs {
		if strings.ContainsRune(members, r) {
			return value, true
		}
	}
	return 0, false
}

// anyDigit returns the value of a digit: decimal of any script, raised, lowered or encircled, or Chinese.
func anyDigit(r rune) (int, bool) {
	if d, ok := pytext.Digit(r); ok {
		return d, true
	}
	for _, run := range symbolRuns {
		if i := int(r - run.lo); run.digit && 0 <= i && i < run.count {
			return int(run.first + float64(i)*run.step), true
		}
	}
	d, ok := chineseDigits[r]
	return d, ok
}

// superscript returns the value of a raised digit.
func superscript(r rune) (int, bool) {
	switch {
	case r == '¹':
		return 1, true
	case r == '²' || r == '³':
		return int(r-'²') + 2, true
	case r == '⁰' || '⁴' <= r && r <= '⁹':
		return int(r - '⁰'), true
	}
	return 0, false
}
