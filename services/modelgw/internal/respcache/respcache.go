// Package respcache decides which calls of a model may share an answer, and for how long one is kept.
//
// A key is a hash over everything that could change the provider's answer: account, servers and arguments of the model,
// configuration, conversation, tools, choice; and over the policy: its expiry, its scopes and, unless it excludes it,
// the epoch. A client of an endpoint shares no answer with other callers: its messages are prepared otherwise. Project
// and model are the group of an entry. Options that only affect retries, timeouts and connections are not part of the
// key, nor are ids of messages. No secret is: an account may change its key.
//
// The conversation is the hash of its messages before preparation, by [Digest]. A conversation that grows is hashed
// from its new messages alone, and has the same key however its messages were sent.
package respcache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/prefix"
)

// defaultExpiry is the expiry of an answer if a policy does not set it.
const defaultExpiry = "1W"

// never is the expiry of answers that are kept permanently.
const never = "never"

var units = map[byte]time.Duration{
	's': time.Second,
	'm': time.Minute,
	'h': time.Hour,
	'D': 24 * time.Hour,
	'W': 7 * 24 * time.Hour,
	'M': 30 * 24 * time.Hour,
	'Y': 365 * 24 * time.Hour,
}

// ParseExpiry parses an expiry: an integer and one of the units s, m, h, D, W, M (30 days) and Y (365 days), which are
// case-sensitive.
func ParseExpiry(text string) (time.Duration, error) {
	if text == "" {
		return 0, errors.New("the expiry is empty")
	}
	last := len(text) - 1
	n, err := strconv.ParseInt(strings.TrimSpace(text[:last]), 10, 32)
	unit, known := units[text[last]]
	if err != nil || !known {
		return 0, fmt.Errorf("invalid expiry %q: write an integer and s, m, h, D, W, M or Y, such as 12h or 1W", text)
	}
	if n > int64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("expiry %q is longer than 292 years: write never", text)
	}
	return time.Duration(n) * unit, nil
}

// Lifetime returns how long a policy keeps an answer; forever has no duration.
func Lifetime(policy *modelv1.CachePolicy) (d time.Duration, forever bool, err error) {
	switch expiry := policy.GetExpiry(); expiry {
	case never:
		return 0, true, nil
	case "":
		d, err = ParseExpiry(defaultExpiry)
	default:
		d, err = ParseExpiry(expiry)
	}
	return d, false, err
}

// Input is the input of a key.
type Input struct {
	Project      string
	Model        string // provider/name
	Account      string
	Servers      []string // which may answer, without secrets
	Client       bool     // a client of an endpoint asks
	Epoch        int32
	Conversation prefix.Hash // by Digest
	Tools        []*toolv1.ToolInfo
	Choice       *toolv1.ToolChoice
	Config       *modelv1.GenerateConfig
	Args         string // of the model
	Policy       *modelv1.CachePolicy
}

// Group returns the group of a project's answers of a model.
func Group(project, model string) string { return project + "/" + model }

// Model returns the model of a group.
func Model(project, group string) string { return strings.TrimPrefix(group, project+"/") }

// Key returns the key of a call. It fails where the policy's expiry cannot be read.
func Key(in Input) (cache.Key, error) {
	life, forever, err := Lifetime(in.Policy)
	if err != nil {
		return cache.Key{}, err
	}
	w := jsonwrite.NewWriter(4096)
	w.BeginList()
	w.Text(in.Account)
	w.Texts(in.Servers)
	w.Text(in.Args)
	w.Raw(string(chat.ConfigJSON(deciding(in.Config))))
	w.Text(in.Conversation.String())
	w.Raw(string(chat.ToolChoiceJSON(in.Choice)))
	w.Raw(string(chat.ToolsJSON(in.Tools)))
	if in.Client {
		w.Bool(true)
	}
	if forever {
		w.Null()
	} else {
		w.Int(int64(life.Seconds()))
	}
	for _, scope := range slices.Sorted(maps.Keys(in.Policy.GetScopes())) {
		w.Text(scope)
		w.Text(in.Policy.GetScopes()[scope])
	}
	if in.Policy.PerEpoch == nil || in.Policy.GetPerEpoch() {
		w.Int(int64(in.Epoch))
	}
	w.EndList()
	hash := sha256.Sum256(w.Bytes())
	return cache.Key{Group: Group(in.Project, in.Model), ID: hex.EncodeToString(hash[:])}, nil
}

// deciding returns the part of a configuration that may change an answer.
func deciding(c *modelv1.GenerateConfig) *modelv1.GenerateConfig {
	d := chat.Merge(c)
	d.MaxConnections, d.AdaptiveConnections, d.Batch, d.Cache = nil, nil, nil, nil
	d.MaxRetries, d.Timeout, d.AttemptTimeout, d.StreamIdleTimeout = nil, nil, nil, nil
	d.FailOnRefusal = nil
	d.CachePrompt = modelv1.CachePrompt_CACHE_PROMPT_UNSPECIFIED
	return d
}

// Digest returns the digest of the part of a message that may change an answer: all but its id, marks of prompt
// caching and who can read its seals, which the seals themselves decide. It is a [prefix.Digester].
func Digest(m *modelv1.ChatMessage) (prefix.Digest, error) {
	deciding := proto.CloneOf(m)
	deciding.Id = ""
	for _, part := range deciding.GetContent().GetList().GetParts() {
		if text := part.GetText(); text != nil {
			text.CacheBreakpoint = nil
		}
		if reasoning := part.GetReasoning(); reasoning != nil {
			reasoning.SealedBy = ""
		}
	}
	d, _, err := prefix.DigestOf(deciding)
	return d, err
}

// Keepable reports whether an answer may be kept: not where a content filter stopped any of it.
func Keepable(output *modelv1.ModelOutput) bool {
	return !slices.ContainsFunc(output.GetChoices(), func(c *modelv1.Choice) bool {
		return c.GetStopReason() == modelv1.StopReason_STOP_REASON_CONTENT_FILTER
	})
}
