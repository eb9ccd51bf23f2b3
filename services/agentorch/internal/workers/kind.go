package workers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

// The kinds that this service asks workers for.
const (
	// Scorer judges a run.
	Scorer = "scorer"
	// Continue decides how an agent continues after a turn.
	Continue = "continue"
)

func kinds(taken func(string) bool) []worker.Kind {
	return []worker.Kind{
		{Name: Scorer, Check: func(offer *workerv1.Offer) error {
			if taken(offer.GetName()) {
				return fmt.Errorf("the scorer %s is built in; give the worker's another name", offer.GetName())
			}
			return nil
		}},
		{Name: Continue},
	}
}

// changing is an answer that may change the run's store.
type changing interface {
	proto.Message
	GetStoreChanges() []*toolv1.StoreChange
}

// read checks an answer and parts it from its changes to the store.
func read(ref *agentv1.WorkerRef, payload string) (*agentv1.WorkerAnswer, error) {
	var answer changing
	switch ref.GetKind() {
	case Scorer:
		answer = &workerv1.ScorerResultPayload{}
	case Continue:
		answer = &workerv1.ContinueResultPayload{}
	default:
		return nil, fmt.Errorf("the kind %q is not known", ref.GetKind())
	}
	if err := worker.Unmarshal(payload, answer); err != nil {
		return nil, err
	}
	changes := answer.GetStoreChanges()
	for _, change := range changes {
		switch {
		case !declared(ref, change.GetKey()):
			return nil, fmt.Errorf("it changes the store's entry %q, which its offer does not name", change.GetKey())
		case change.ValueJson != nil && !json.Valid([]byte(change.GetValueJson())):
			return nil, fmt.Errorf("its value for the store's entry %q is no JSON", change.GetKey())
		}
	}
	switch a := answer.(type) {
	case *workerv1.ScorerResultPayload:
		if a.GetScore().GetValue().GetKind() == nil {
			return nil, errors.New(`it gave no score; answer {"score": {"value": {"text": "C"}}}, or number, flag, list or map in place of text`)
		}
		a.StoreChanges = nil
	case *workerv1.ContinueResultPayload:
		if a.GetDecision() == nil {
			return nil, errors.New(`it decided nothing; answer {"proceed": true}, or false, or {"message": "…"}, or {"conversation": …}`)
		}
		a.StoreChanges = nil
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	return &agentv1.WorkerAnswer{PayloadJson: compact.String(), StoreChanges: changes}, nil
}

// declared reports whether an offer names an entry of the store.
func declared(ref *agentv1.WorkerRef, key string) bool {
	return slices.ContainsFunc(ref.GetStoreKeys(), func(named string) bool {
		prefix, open := strings.CutSuffix(named, "*")
		return key == named || open && strings.HasPrefix(key, prefix)
	})
}

// Entries returns the entries of a store that an offer names.
func Entries(ref *agentv1.WorkerRef, store map[string]string) map[string]string {
	entries := map[string]string{}
	for key, value := range store {
		if declared(ref, key) {
			entries[key] = value
		}
	}
	return entries
}
