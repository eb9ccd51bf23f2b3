package limittrial

import (
	"math"
	"math/rand/v2"
	"time"
)

// Shape is how the capacity of a provider moves, in the time since the start at speed 1.
type Shape struct {
	Name string
	// InFlight is how many calls it takes at once; nil if it counts calls in time.
	InFlight func(time.Duration) int
	// PerSecond is how many calls it takes in a second, where InFlight is nil: as a bucket of Burst calls that fills
	// steadily, or in whole windows, at whose end it says that it takes calls again.
	PerSecond float64
	Burst     int
	Window    time.Duration
	// RetryAfter is the wait that it asks refused callers for; zero is none.
	RetryAfter time.Duration
}

// Shapes returns the capacities of a trial, which lie between 20 and 100, but for an outage.
func Shapes() []Shape {
	return []Shape{
		{Name: "fixed", InFlight: func(time.Duration) int { return 50 }},
		Steps(),
		{Name: "steps with Retry-After", InFlight: steps(2*time.Minute, 60, 40, 80), RetryAfter: 5 * time.Second},
		{Name: "fall", InFlight: steps(2*time.Minute, 60, 25, 60)},
		{Name: "outage", InFlight: func(t time.Duration) int {
			if t >= 100*time.Second && t < 110*time.Second {
				return 0
			}
			return 60
		}},
		{Name: "few", InFlight: steps(2*time.Minute, 24, 20, 28)},
		{Name: "drift", InFlight: func(t time.Duration) int { // Up and down again within six minutes.
			return 60 - int(math.Round(20*math.Cos(2*math.Pi*t.Minutes()/6)))
		}},
		{Name: "sawtooth", InFlight: func(t time.Duration) int { return 40 + int(40*math.Mod(t.Minutes(), 1)) }},
		{Name: "random steps", InFlight: randomSteps(40 * time.Second)},
		{Name: "bucket", PerSecond: 25, Burst: 25},
		{Name: "window", PerSecond: 25, Window: time.Minute},
	}
}

// Steps is a capacity of 60 calls, then 40, then 80, for two minutes each.
func Steps() Shape { return Shape{Name: "steps", InFlight: steps(2*time.Minute, 60, 40, 80)} }

// steps returns a capacity that stays for a period, and stays in the end.
func steps(period time.Duration, capacities ...int) func(time.Duration) int {
	return func(t time.Duration) int { return capacities[min(int(t/period), len(capacities)-1)] }
}

// randomSteps returns a capacity from 30 to 90 that stays for a period.
func randomSteps(period time.Duration) func(time.Duration) int {
	return func(t time.Duration) int {
		return 30 + rand.New(rand.NewPCG(7, uint64(t/period))).IntN(61) //nolint:gosec // no secret: the same in each run
	}
}

// state is a provider at a moment.
type state struct {
	shape    Shape
	inFlight int
	tokens   float64
	filled   time.Duration // when tokens were last counted
}

func (s Shape) provider() state {
	tokens := float64(s.Burst)
	if s.Window > 0 {
		tokens = s.PerSecond * s.Window.Seconds()
	}
	return state{shape: s, tokens: tokens}
}

// take takes a call, or refuses it and returns the wait that it asks for.
func (s *state) take(now time.Duration) (taken bool, wait time.Duration) {
	wait = s.shape.RetryAfter
	switch {
	case s.shape.InFlight != nil:
		taken = s.inFlight < s.shape.InFlight(now)
	case s.shape.Window > 0:
		if now/s.shape.Window > s.filled/s.shape.Window {
			s.tokens = s.shape.PerSecond * s.shape.Window.Seconds()
		}
		taken, wait = s.tokens >= 1, s.shape.Window-now%s.shape.Window
	default:
		s.tokens = min(float64(s.shape.Burst), s.tokens+s.shape.PerSecond*(now-s.filled).Seconds())
		taken = s.tokens >= 1
	}
	s.filled = now
	if taken {
		s.inFlight++
		s.tokens--
	}
	return taken, wait
}
