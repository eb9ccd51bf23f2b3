package number

import (
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// chineseDigits are the digits of everyday and financial writing.
var chineseDigits = map[rune]int{
	'零': 0, '〇': 0, '○': 0,
	'一': 1, '壹': 1, '幺': 1,
	'二': 2, '贰': 2, '貳': 2, '两': 2, '兩': 2,
	'三': 3, '叁': 3, '參': 3,
	'四': 4, '肆': 4,
	'五': 5, '伍': 5,
	'六': 6, '陆': 6, '陸': 6,
	'七': 7, '柒': 7,
	'八': 8, '捌': 8,
	'九': 9, '玖': 9,
}

// chineseUnits multiply the digit before them; chineseTens are whole tens in one character.
var (
	chineseUnits = map[rune]float64{'十': 10, '拾': 10, '百': 100, '佰': 100, '千': 1000, '仟': 1000}
	chineseTens  = map[rune]float64{'廿': 20, '卅': 30, '卌': 40}
)

// chineseScales multiply everything before them since the last scale.
var chineseScales = map[rune]float64{'万': 1e4, '萬': 1e4, '亿': 1e8, '億': 1e8, '兆': 1e12}

// isChinese reports whether r belongs to Chinese numerals, their signs and decimal words included.
func isChinese(r rune) bool {
	_, digit := chineseDigits[r]
	return digit || isChineseUnit(r) || strings.ContainsRune("点點负負正", r)
}

func isChineseUnit(r rune) bool {
	return chineseUnits[r] != 0 || chineseTens[r] != 0 || chineseScales[r] != 0
}

// parseChinese reads Chinese numerals without sign, either digit by digit (二〇二五) or by units (三百四十二), with decimals
// behind 点.
func parseChinese(s string) (float64, bool) {
	whole, decimals := s, ""
	for _, mark := range []string{"点", "點", "．", "."} {
		if before, after, found := strings.Cut(s, mark); found {
			whole, decimals = before, after
			break
		}
	}
	read := chineseDigitString
	if strings.ContainsFunc(whole, isChineseUnit) {
		read = chineseByUnits
	}
	value, ok := read(whole)
	if !ok {
		return 0, false
	}
	place := 1.0
	for _, r := range decimals {
		if pytext.IsSpace(r) {
			continue
		}
		d, ok := anyDigit(r)
		if !ok {
			return 0, false
		}
		place /= 10
		value += float64(d) * place
	}
	return value, true
}

// chineseDigitString reads a sequence of digits. No digits are 0, as in 点五.
func chineseDigitString(s string) (float64, bool) {
	value := 0.0
	for _, r := range s {
		if pytext.IsSpace(r) {
			continue
		}
		d, ok := anyDigit(r)
		if !ok {
			return 0, false
		}
		value = value*10 + float64(d)
	}
	return value, true
}

// chineseByUnits sums digits times units, section by section: 三万四千 is (3)×10⁴ + (4×10³). A unit without a digit counts
// once (十五). Of consecutive digits only the last one counts, and zeros only mark skipped units.
func chineseByUnits(s string) (float64, bool) {
	total, section, digit := 0.0, 0.0, 0.0
	for _, r := range s {
		d, isDigit := anyDigit(r)
		switch {
		case pytext.IsSpace(r) || strings.ContainsRune("零〇○", r):
		case chineseTens[r] != 0:
			section += chineseTens[r]
		case chineseUnits[r] != 0:
			section += max(digit, 1) * chineseUnits[r]
			digit = 0
		case chineseScales[r] != 0:
			total += (section + digit) * chineseScales[r]
			section, digit = 0, 0
		case isDigit:
			digit = float64(d)
		default:
			return 0, false
		}
	}
	return total + section + digit, true
}
