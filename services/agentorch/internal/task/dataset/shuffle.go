package dataset

import (
	"fmt"
	"math/rand/v2"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

// permutation returns a random order of n things that depends on the seed alone and will not change between versions.
func permutation(random *rand.PCG, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// Fisher and Yates. The remainder favours small numbers by less than one in 2^40 for any list that fits in memory.
	for i := n - 1; i > 0; i-- {
		j := int(random.Uint64() % uint64(i+1))
		order[i], order[j] = order[j], order[i]
	}
	return order
}

func generator(seed int64) *rand.PCG {
	return rand.NewPCG(uint64(seed), 0x65766c6674)
}

// Order returns the positions of n samples in a random order. It is deterministic for a seed.
func Order(seed int64, n int) []int { return permutation(generator(seed), n) }

// choiceShuffle shuffles the choices of one sample after another.
type choiceShuffle struct {
	dataset string
	random  *rand.PCG
	count   int
}

func newChoiceShuffle(dataset string, seed int64) *choiceShuffle {
	return &choiceShuffle{dataset: dataset, random: generator(seed)}
}

func (c *choiceShuffle) next(s Sample) (Sample, error) {
	c.count++
	changed, err := s.withChoiceOrder(permutation(c.random, len(s.Choices)))
	if err != nil {
		return Sample{}, &Error{File: c.dataset, Field: "target", Problem: fmt.Sprintf("sample %s (number %d): %v", s.ID, c.count, err)}
	}
	return changed, nil
}

// withChoiceOrder returns the sample with choices in a new order: at each position the choice that stood at
// order[position].
func (s Sample) withChoiceOrder(order []int) (Sample, error) {
	if len(s.Choices) == 0 {
		return s, nil
	}
	letters := make(map[int]string, len(order))
	choices := make([]string, len(order))
	original := make([]int, len(order))
	for position, from := range order {
		letters[from] = choice.Letter(position)
		choices[position] = s.Choices[from]
		original[position] = from
	}
	targets := make([]string, len(s.Targets))
	for i, target := range s.Targets {
		from, err := choice.Index(target)
		letter, known := letters[from]
		if err != nil || !known {
			return Sample{}, fmt.Errorf("choices cannot be shuffled, since the target %q is not the letter of one of %d choices: "+
				"give one letter, or a list with one letter each", target, len(choices))
		}
		targets[i] = letter
	}
	s.Choices, s.ChoiceOrder, s.Targets = choices, original, targets
	return s, nil
}
