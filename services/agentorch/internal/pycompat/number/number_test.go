package number_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/number"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]float64{
		"42": 42, "-5": -5, "−5": -5, "－５": -5, "+7": 7, "3.14": 3.14, "1e3": 1000, "(42)": 42, "42!": 42, "'7'": 7, "--3": 3,
		"½": 0.5, "1½": 1.5, "-½": -0.5, "十二⅓": 12 + 1./3, "10²": 100, "2⁻¹": 0.5, "-2²": 4, "2¹⁰": 1024, "²": 2, "²³": 23,
		"Ⅻ": 12, "①": 1, "①②": 12, "㉑": 21, "٤٢": 42, "１２３": 123, "1٫5": 1.5, "1’000": 1000,
		"一": 1, "十五": 15, "四十二": 42, "三百零五": 305, "二〇二五": 2025, "三万四千": 34000, "1万": 10000, "三点一四": 3.14, "负三": -3, "廿一": 21,
	} {
		got, ok := number.Parse(word)
		require.True(t, ok, word)
		assert.InDelta(t, want, got, 1e-12, word)
	}
	for _, word := range []string{
		"", "x", "60%", "42km", "x=42", "1/2", "₤5", "7°", "7+", "<42", "~42", "inf", "nan", "1.2.3", "½½", "½5", "0⁻¹", "1e", "e5", "10²x", "+", "一x", "9e999",
	} {
		_, ok := number.Parse(word)
		assert.False(t, ok, word)
	}
}

func TestParseBareKeepsPunctuation(t *testing.T) {
	t.Parallel()
	_, ok := number.ParseBare("(42)")
	assert.False(t, ok)
	got, ok := number.ParseBare(" 42 ")
	assert.True(t, ok)
	assert.InDelta(t, 42, got, 0)
}

func TestStripFormatting(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"costs $1,234.00.": "costs 1234.00", `\$20`: "20", "**42**": "42", "_4_2_": "42", "€5,00": "500", "1.$5": "1.5", "3. x": "3 x", "60%": "60%", `\20`: `\20`,
		"1.٤": "1.٤",
	} {
		assert.Equal(t, want, number.StripFormatting(text))
	}
}

func TestNormalizeKeepsFiveDigits(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{3.14159265: "3.1416", 1e6: "1e+06", 123456: "1.2346e+05", 123457: "1.2346e+05", 10000: "10000", 0.00001: "1e-05", 42: "42"} {
		assert.Equal(t, want, number.Normalize(f))
	}
	assert.Equal(t, "-0", number.Normalize(math.Copysign(0, -1)))
}

func TestAllTakesWholeWords(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []float64{1, 2, 3}, number.All("first 1 then (2); not 60% but 3"))
	assert.Empty(t, number.All("no numbers"))
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1,234.5", "−½", "10²", "四十二", "二〇二五点五", "1e+3", "⁻²", "十兆"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		value, ok := number.Parse(word)
		if !ok {
			return
		}
		require.False(t, math.IsNaN(value) || math.IsInf(value, 0), "only finite numbers")
		again, ok := number.Parse(number.Normalize(value))
		require.True(t, ok || math.Abs(value) > 1e308, "the normal form is a number")
		if ok {
			require.Equal(t, number.Normalize(value), number.Normalize(again), "and stays as it is")
		}
	})
}

func FuzzStripFormatting(f *testing.F) {
	f.Add(`\$1,000.`)
	f.Fuzz(func(t *testing.T, text string) {
		stripped := number.StripFormatting(text)
		require.False(t, strings.ContainsAny(stripped, "$,£€*_"))
	})
}

// The time of a long word is not that of its length times its length.
func TestLongWords(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	value, ok := number.Parse(strings.Repeat("-", 1<<21) + "3")
	require.True(t, ok)
	assert.InDelta(t, 3, value, 0)
	_, ok = number.Parse("2" + strings.Repeat("¹", 1<<21))
	require.False(t, ok, "the exponent has no finite value")
	assert.Less(t, time.Since(begun), waittest.Bound)
}
