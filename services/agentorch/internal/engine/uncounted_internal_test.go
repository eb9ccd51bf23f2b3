package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A machine that slept for an hour took no time of a run, whether the run's clock or the engine's beat comes first
// after it.
func TestASleepOfTheMachineDoesNotCount(t *testing.T) {
	t.Parallel()
	const asleep = time.Hour
	u := excludedTime{ttl: 5 * time.Second}
	u.noteBeat(time.Now(), false)
	assert.Zero(t, u.until(time.Now().Add(time.Second)), "between two beats all counts")
	assert.Equal(t, u.well.Round(0).String(), u.well.String(), "the monotonic clock would stop with the machine")
	u.well = u.well.Add(-asleep)
	early := u.until(time.Now())
	assert.GreaterOrEqual(t, early, asleep, "before the first beat")
	u.noteClockJump()
	u.noteBeat(time.Now(), false)
	assert.GreaterOrEqual(t, u.until(time.Now()), early)
	assert.Less(t, u.until(time.Now()), asleep+time.Minute, "it is left out once")
}
