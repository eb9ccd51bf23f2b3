package limit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Meter counts tokens by a formula over `input`, which includes cached tokens, and `output`. It does not change and may
// be shared.
type Meter struct {
	count func(*modelv1.ModelUsage) float64
}

// NewMeter reads a formula: `all` (or nothing), `input`, `output`, or an expression over the last two with numbers, + -
// * / and parentheses.
func NewMeter(formula string) (*Meter, error) {
	switch strings.TrimSpace(formula) {
	case "", "all":
		return &Meter{func(u *modelv1.ModelUsage) float64 { return float64(u.GetTotalTokens()) }}, nil
	}
	p := parser{rest: formula}
	count, err := p.sum(0)
	if err == nil && p.peek() != 0 {
		err = fmt.Errorf("unexpected %q", p.rest)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w; write all, input, output, or an expression such as (input*0.1)+output", formula, err)
	}
	return &Meter{count}, nil
}

// Count applies the formula and rounds down.
func (m *Meter) Count(u *modelv1.ModelUsage) int64 {
	n := math.Floor(m.count(u))
	if math.IsNaN(n) || n < 0 {
		return 0
	}
	return int64(min(n, math.MaxInt64/2))
}

// maxDepth bounds the nesting of a formula, which comes from strangers.
const maxDepth = 50

// parser reads `sum = product {(+|-) product}`, `product = atom {(*|/) atom}`, `atom = number | input | output |
// (sum) | (+|-) atom`.
type parser struct{ rest string }

type counter = func(*modelv1.ModelUsage) float64

func (p *parser) peek() byte {
	p.rest = strings.TrimLeft(p.rest, " \t")
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

func (p *parser) sum(depth int) (counter, error) {
	return p.chain(depth, "+-", p.product)
}

func (p *parser) product(depth int) (counter, error) {
	return p.chain(depth, "*/", p.atom)
}

// chain reads operands with operators between them, left to right.
func (p *parser) chain(depth int, operators string, operand func(int) (counter, error)) (counter, error) {
	left, err := operand(depth)
	for err == nil && p.peek() != 0 && strings.IndexByte(operators, p.rest[0]) >= 0 {
		operator := p.rest[0]
		p.rest = p.rest[1:]
		var right counter
		if right, err = operand(depth); err == nil {
			left = combine(operator, left, right)
		}
	}
	return left, err
}

func combine(operator byte, a, b counter) counter {
	return func(u *modelv1.ModelUsage) float64 {
		switch x, y := a(u), b(u); operator {
		case '+':
			return x + y
		case '-':
			return x - y
		case '*':
			return x * y
		default:
			return x / y
		}
	}
}

func (p *parser) atom(depth int) (counter, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	switch p.peek() {
	case '+', '-':
		sign := p.rest[0]
		p.rest = p.rest[1:]
		operand, err := p.atom(depth + 1)
		if err != nil {
			return nil, err
		}
		return combine(sign, func(*modelv1.ModelUsage) float64 { return 0 }, operand), nil
	case '(':
		p.rest = p.rest[1:]
		inner, err := p.sum(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.peek() != ')' {
			return nil, errors.New("a closing parenthesis is missing")
		}
		p.rest = p.rest[1:]
		return inner, nil
	}
	end := strings.IndexAny(p.rest, " \t+-*/()")
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	switch word {
	case "input":
		return inputTokens, nil
	case "output":
		return outputTokens, nil
	}
	number, err := strconv.ParseFloat(word, 64)
	if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
		return nil, fmt.Errorf("unexpected %q", word)
	}
	return func(*modelv1.ModelUsage) float64 { return number }, nil
}
