// Package choice holds the options of a multiple-choice sample: their letters, the prompt that lists them, and the
// letters that a model answers.
//
// It is pure. The solver that asks the question, the scorer that judges the selection and the dataset that shuffles the
// options share it, so that all of them mean the same option by a letter.
package choice

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// Choice is one option of a sample.
type Choice struct {
	// Value is the text of the option.
	Value string
	// Selected reports whether the model chose it.
	Selected bool
	// Original is the position that the option had before choices were shuffled, from 0.
	Original int
}

// Choices are the options of one sample, in the order in which the model sees them. Nil means that the sample has none.
type Choices []Choice

// New returns choices in their original order, with none selected.
func New(values []string) Choices {
	choices := make(Choices, len(values))
	for i, value := range values {
		choices[i] = Choice{Value: value, Original: i}
	}
	return choices
}

// Letter names the option at position i, from 0: A to Z, then 1, 2, ….
func Letter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return strconv.Itoa(i - 25)
}

// Index is the reverse of Letter; lower case counts as upper case. The position may lie outside of a sample's options.
func Index(letter string) (int, error) {
	runes := []rune(letter)
	if len(runes) == 1 && unicode.IsLetter(runes[0]) {
		return int(unicode.ToUpper(runes[0]) - 'A'), nil
	}
	n, err := strconv.Atoi(letter)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q names no option: want a letter, or a number from 1 for options behind Z", letter)
	}
	return n + 25, nil
}

// Letters returns the letters of all options in order.
func (c Choices) Letters() []string {
	letters := make([]string, len(c))
	for i := range c {
		letters[i] = Letter(i)
	}
	return letters
}

// List writes the options as the model sees them, one a line: `A) Paris`.
func (c Choices) List() string {
	lines := make([]string, len(c))
	for i, option := range c {
		lines[i] = Letter(i) + ") " + option.Value
	}
	return strings.Join(lines, "\n")
}

// Select marks the options at the given positions as selected and all others as not.
func (c Choices) Select(positions []int) {
	for i := range c {
		c[i].Selected = false
	}
	for _, i := range positions {
		if i >= 0 && i < len(c) {
			c[i].Selected = true
		}
	}
}

// Selected returns the positions of the selected options, in order.
func (c Choices) Selected() []int {
	var positions []int
	for i, option := range c {
		if option.Selected {
			positions = append(positions, i)
		}
	}
	return positions
}

// Shuffled reports whether any option has another position than in the sample.
func (c Choices) Shuffled() bool {
	for i, option := range c {
		if option.Original != i {
			return true
		}
	}
	return false
}

// Unshuffled returns a copy in the original order, so that letters are those of the sample's target.
func (c Choices) Unshuffled() Choices {
	original := slices.Clone(c)
	slices.SortStableFunc(original, func(a, b Choice) int { return a.Original - b.Original })
	return original
}

// TargetPositions reads which options a sample's targets name, in the order given: letters separated by commas, white
// space or nothing, and numbers for options behind Z. It fails on a letter that is no option of c.
func (c Choices) TargetPositions(targets []string) ([]int, error) {
	var positions []int
	var outside []string
	for _, letter := range targetLetters(targets) {
		i, err := Index(letter)
		if err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		if i < 0 || i >= len(c) {
			outside = append(outside, letter)
		}
		positions = append(positions, i)
	}
	if outside != nil {
		return nil, fmt.Errorf("target names %s, but the sample has %d choices: correct the target or the choices", strings.Join(outside, ", "), len(c))
	}
	return positions, nil
}

func targetLetters(targets []string) []string {
	var letters []string
	for _, target := range targets {
		for _, token := range pytext.Fields(strings.ReplaceAll(target, ",", " ")) {
			if strings.IndexFunc(token, func(r rune) bool { return !unicode.IsNumber(r) }) < 0 {
				letters = append(letters, token)
				continue
			}
			for _, r := range token {
				letters = append(letters, string(r))
			}
		}
	}
	return letters
}
