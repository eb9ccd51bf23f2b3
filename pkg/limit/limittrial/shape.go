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
	// steadily, or in whole windows. If Tokens is set, it counts tokens, of which a call takes as many on average, from
	// a tenth of that to almost twice as many.
	PerSecond float64
	Burst     int
	Window    time.Duration
	Tokens    float64
	// RetryAfter is the wait that it asks refused callers for; zero is none. In windows it is that until the end,
	// unless Mute is set.
	RetryAfter time.Duration
	Mute       bool
	// Says is when it reads the rate limit that it reports with an answer.
	Says Says
}

// Says is when a provider reads the rate limit that it reports.
type Says int

// Times at which a provider reads its rate limit: never, when a call begins, and when it is answered. The report comes
// with the answer.
const (
	Nothing Says = iota
	AtStart
	AtEnd
)

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
		{Name: "window without Retry-After", PerSecond: 25, Window: time.Minute, Mute: true},
		{Name: "bucket that says", PerSecond: 25, Burst: 25, Says: AtStart},
		{Name: "minute's 50 that it says", PerSecond: 50.0 / 60, Burst: 50, Says: AtStart},
		{Name: "minute's bucket that says", PerSecond: 25, Burst: 1500, Says: AtStart},
		{Name: "minute's bucket that says late", PerSecond: 25, Burst: 1500, Says: AtEnd},
		{Name: "minute's tokens that it says", PerSecond: 25, Burst: 1500, Tokens: 1000, Says: AtStart},
		{Name: "window that says", PerSecond: 25, Window: time.Minute, Says: AtStart},
		{Name: "window that says without Retry-After", PerSecond: 25, Window: time.Minute, Mute: true, Says: AtEnd},
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
	random   *rand.Rand
	inFlight int
	left     float64       // in calls, or in parts of what a call takes on average
	filled   time.Duration // when left was last counted
}

func (s Shape) provider(seed uint64) state {
	p := state{shape: s, random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // no secret: the same in each run
	p.left = p.most()
	return p
}

// most is how much there is at most.
func (s *state) most() float64 {
	if s.shape.Window > 0 {
		return s.shape.PerSecond * s.shape.Window.Seconds()
	}
	return float64(s.shape.Burst)
}

// fill brings what is left up to date.
func (s *state) fill(now time.Duration) {
	switch w := s.shape.Window; {
	case w == 0:
		s.left = min(s.most(), s.left+s.shape.PerSecond*(now-s.filled).Seconds())
	case now/w > s.filled/w:
		s.left = s.most()
	}
	s.filled = now
}

// take takes a call, or refuses it and returns the wait that it asks for.
func (s *state) take(now time.Duration) (taken bool, wait time.Duration) {
	s.fill(now)
	wait = s.shape.RetryAfter
	if s.shape.Window > 0 && !s.shape.Mute {
		wait = s.shape.Window - now%s.shape.Window
	}
	takes := 1.0
	if s.shape.Tokens > 0 {
		takes = 0.1 + 1.8*s.random.Float64()
	}
	if s.shape.InFlight != nil {
		taken = s.inFlight < s.shape.InFlight(now)
	} else if taken = s.left >= takes; taken {
		s.left -= takes
	}
	if taken {
		s.inFlight++
	}
	return taken, wait
}

// allowance is the rate limit, how much of it is left, and when it is full.
func (s *state) allowance(now time.Duration) (most, left float64, full time.Duration) {
	s.fill(now)
	most, left = s.most(), s.left
	full = now + time.Duration((most-left)/s.shape.PerSecond*float64(time.Second))
	if w := s.shape.Window; w > 0 {
		full = (now/w + 1) * w
	}
	if tokens := s.shape.Tokens; tokens > 0 {
		most, left = most*tokens, left*tokens
	}
	return most, left, full
}
