package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

//go:embed sync.lua
var syncText string

//go:embed register.lua
var registerText string

// scripts are the scripts of a limiter.
type scripts struct{ sync, register *redis.Script }

func newScripts() scripts {
	return scripts{sync: redis.NewScript(syncText), register: redis.NewScript(registerText)}
}

// call runs scripts in one round trip. It does not fail for faults of single keys, which the calls have. A server that
// does not have the scripts, as after a restart, is given them.
func (l *Limiter) call(ctx context.Context, add func(redis.Pipeliner) []*redis.Cmd) error {
	for range 2 {
		pipe := l.cfg.Client.Pipeline()
		calls := add(pipe)
		_, err := pipe.Exec(ctx)
		// An answer for one key may hide the error of a later call.
		if answered(err) {
			err = nil
			if i := slices.IndexFunc(calls, func(c *redis.Cmd) bool { return !answered(c.Err()) }); i >= 0 {
				err = calls[i].Err()
			}
		}
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		for _, script := range []*redis.Script{l.scripts.sync, l.scripts.register} {
			if err := script.Load(ctx, l.cfg.Client).Err(); err != nil {
				return err
			}
		}
	}
	return errors.New("the server forgets scripts")
}

// answered reports whether a call with an error was answered: with nothing, or with a fault of what its key holds, as a
// wrong type or a value at which the script fails. Other errors, such as LOADING or READONLY, are the server's.
func answered(err error) bool {
	return err == nil || errors.Is(err, redis.Nil) || slices.ContainsFunc(
		[]string{"WRONGTYPE", "user_script:", "Error running script"}, // The last two are those of Redis 7, and before it.
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) },
	)
}

// send runs sync.lua for each exchange, and enters pools into the register that Redis may not have.
func (l *Limiter) send(ctx context.Context, exchanges []*exchange) error {
	return l.call(ctx, func(pipe redis.Pipeliner) []*redis.Cmd {
		calls := make([]*redis.Cmd, 0, len(exchanges))
		for _, x := range exchanges {
			x.answer = l.scripts.sync.EvalSha(ctx, pipe, []string{l.redisKey(x.pool)}, x.arguments(l)...)
			calls = append(calls, x.answer)
			if x.lost {
				calls = append(calls, l.enter(ctx, pipe, poolsKey, keep, x.pool.key))
			}
		}
		return calls
	})
}

// redisKey is the key of a pool's hash.
func (l *Limiter) redisKey(p *pool) string { return l.cfg.Client.Prefix + "limit:" + p.key }

// enter runs register.lua.
func (l *Limiter) enter(ctx context.Context, pipe redis.Pipeliner, register string, life time.Duration, members ...any) *redis.Cmd {
	args := append([]any{life.Milliseconds(), keep.Milliseconds(), l.clock()}, members...)
	return l.scripts.register.EvalSha(ctx, pipe, []string{l.cfg.Client.Prefix + register}, args...)
}

func (x *exchange) arguments(l *Limiter) []any {
	var history string
	if x.write && (x.next.history != x.known.history || x.lost) { // It is long, and Redis has it otherwise.
		history = x.next.history.Text()
	}
	return []any{
		x.replica, l.cfg.TTL.Milliseconds(), keep.Milliseconds(), l.clock(),
		x.held, x.want, x.spare, x.inUse, x.peak, x.waiting,
		x.known.version, x.known.historyAt, x.replicas,
		x.next.state, x.limit, history,
	}
}

// read reads the answer; nil if Redis does not have the pool.
func (x *exchange) read() (*answer, error) {
	values, err := x.answer.Slice()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var numbers []int64
	var texts []string
	for _, v := range values {
		switch v := v.(type) {
		case int64:
			numbers = append(numbers, v)
		case string:
			texts = append(texts, v)
		}
	}
	if len(numbers) != 8 || len(texts) != 2 {
		return nil, errAnswer
	}
	a := &answer{
		clock:   time.UnixMilli(numbers[0]).UTC(),
		rule:    base{version: numbers[1], historyAt: numbers[2], state: texts[0], history: x.known.history},
		swapped: numbers[3] == 1,
		grant:   int(numbers[4]),
		others:  others{inUse: int(numbers[5]), peak: int(numbers[6]), waiting: int(numbers[7])},
	}
	if texts[1] != "" {
		if a.rule.history, err = limit.DecodeHistory(texts[1]); err != nil {
			return nil, fmt.Errorf("the history of %s: %w", x.pool.key, err)
		}
	}
	if a.rule.state != "" {
		if _, err = limit.DecodeRule(a.rule.state, a.rule.history); err != nil {
			return nil, fmt.Errorf("the rule of %s: %w", x.pool.key, err)
		}
	}
	return a, nil
}

// errAnswer is the error for an answer that sync.lua does not give.
var errAnswer = errors.New("redis answers in an unknown form")

// clock is the argument of scripts for the time: empty for that of Redis.
func (l *Limiter) clock() string {
	if l.cfg.clock == nil {
		return ""
	}
	return strconv.FormatInt(l.cfg.clock().UnixMilli(), 10)
}

// The registers of replicas and of pools.
const (
	replicasKey = "limit-replicas"
	poolsKey    = "limit-pools"
)

// beat enters this process and its pools into the registers, and counts the replicas.
func (l *Limiter) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncTimeout)
	defer cancel()
	var pools []any
	for _, p := range l.chosen(func(p *pool) bool { return p.rule != nil && !p.quiet }) {
		pools = append(pools, p.key)
	}
	var replicas *redis.Cmd
	err := l.call(ctx, func(pipe redis.Pipeliner) []*redis.Cmd {
		replicas = l.enter(ctx, pipe, replicasKey, l.cfg.TTL, l.cfg.Replica)
		return []*redis.Cmd{replicas, l.enter(ctx, pipe, poolsKey, keep, pools...)}
	})
	if err != nil {
		return err
	}
	n, err := replicas.Int()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// A register that was lost fills again as the others beat: a lower number counts once it has lasted.
	if now := time.Now(); n >= l.replicas || now.Sub(l.agreed) >= l.cfg.TTL {
		l.replicas, l.agreed = max(n, 1), now
	}
	return nil
}

// registered returns the keys of the pools that any replica has used, the last ones if there are many.
func (l *Limiter) registered(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncTimeout)
	defer cancel()
	keys, err := l.cfg.Client.ZRevRange(ctx, l.cfg.Client.Prefix+poolsKey, 0, maxPools-1).Result()
	if err != nil {
		return nil // The exchange that follows finds out and reports it.
	}
	return keys
}

// leave returns the leases, and takes this process out of the register. If Redis is away both expire.
func (l *Limiter) leave(ctx context.Context) {
	if l.sync(ctx, l.chosen(func(p *pool) bool { return !p.quiet })...) == nil {
		_ = l.cfg.Client.ZRem(ctx, l.cfg.Client.Prefix+replicasKey, l.cfg.Replica)
	}
}
