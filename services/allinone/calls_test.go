package allinone_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoregistry"

	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
)

// asked is a call, and its expected answer over gRPC and REST.
type asked struct {
	// call is the method, as Service.Method, and request its request as JSON. REST gets the same request.
	call, request string
	// verb, path and body are a call over REST alone: one that no typed client can make.
	verb, path, body string
	// status is the HTTP status; code, reason and fields are those of the error. Fields have the names of the schema.
	status       int
	code, reason string
	fields       []string
	// says are parts of the message, above all the next step.
	says []string
}

// over makes the REST call of a method's request: fields of the path in the path, the others in the body or the query.
func (d doors) over(t *testing.T, call, request string) said {
	t.Helper()
	i := slices.IndexFunc(bindings(), func(b binding) bool { return string(b.method.Parent().Name())+"."+string(b.method.Name()) == call })
	require.GreaterOrEqual(t, i, 0, call)
	b := bindings()[i]
	members := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(request), &members))
	path := anyVariable.ReplaceAllStringFunc(b.path, func(v string) string {
		holder, name := members, anyVariable.FindStringSubmatch(v)[1]
		if outer, inner, nested := strings.Cut(name, "."); nested { // Such as budget.name.
			holder, name = members[outer].(map[string]any), inner
		}
		value, _ := holder[name].(string)
		delete(holder, name)
		return value
	})
	query := url.Values{}
	rest := any(members)
	if b.body != b.method.Input() {
		for name, value := range members {
			if text, ok := value.(string); ok {
				query.Set(name, text)
			} else {
				rest = value
			}
		}
		path += "?" + query.Encode()
	}
	body := ""
	if b.body != nil {
		text, err := json.Marshal(rest)
		require.NoError(t, err)
		body = string(text)
	}
	return d.rest(t, b.verb, strings.TrimSuffix(path, "?"), body)
}

// typed makes the gRPC call of a method's request.
func (d doors) typed(t *testing.T, call, request string) said {
	t.Helper()
	method := methods()[call]
	require.NotNil(t, method, call)
	requestType, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	require.NoError(t, err)
	m := requestType.New().Interface()
	require.NoError(t, protojson.Unmarshal([]byte(request), m), call)
	return d.grpc(t, method, m)
}

var afterUnderscore = regexp.MustCompile(`_([a-z])`)

// spelledInJSON is the path of a field as a REST client spells it, seen from the body that it sends.
func spelledInJSON(call, path string) string {
	for _, within := range []string{"budget.", "eval."} {
		if strings.Contains(call, ".Update") {
			path = strings.TrimPrefix(path, within)
		}
	}
	path, member, _ := strings.Cut(path, "/")
	path = afterUnderscore.ReplaceAllStringFunc(path, func(s string) string { return strings.ToUpper(s[1:]) })
	if member != "" {
		path += "/" + member
	}
	return path
}

const (
	project = "projects/default"
	runs    = "/api/v1/projects/default/runs"
)

// spec is a run's specification as JSON: one that is right, with members of its own.
func spec(more string) string {
	members := map[string]any{"prompt": "hi", "steps": []any{map[string]any{"name": "generate"}}, "model": map[string]any{"model": "mockllm/model"}}
	var own map[string]any
	if err := json.Unmarshal([]byte("{"+more+"}"), &own); err != nil {
		panic(err)
	}
	for name, value := range own {
		members[name] = value
	}
	text, _ := json.Marshal(members) // Of texts, lists and maps.
	return string(text)
}

// Each call has the same answer over gRPC and over REST: the code, the reason, the field as the caller spells it, and a
// message with the next step.
func TestACallHasOneAnswerAtBothDoors(t *testing.T) {
	t.Parallel()
	d := open(t, withGuest(t))
	created := func(call, request string) string {
		t.Helper()
		got := d.over(t, call, request)
		require.Equal(t, http.StatusOK, got.status, got)
		var answer struct{ Name string }
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
		return answer.Name
	}
	run := func(more string) string { return `{"parent": "projects/default", "spec": ` + spec(more) + `}` }
	evalOf := func(dataset, more string) string {
		return `{"parent": "projects/default", "spec": {"task": "t", "dataset": ` + dataset + `, "steps": [{"name": "generate"}], "models": [{"model": "mockllm/model"}]` + more + `}}`
	}
	const one = `{"inline": {"samples": [{"input": [{"role": "ROLE_USER", "content": {"text": "q"}}]}]}}`
	generate := func(more string) string {
		return `{"parent": "projects/default", "model": "mockllm/model", "messages": [{"role": "ROLE_USER", "content": {"text": "q"}}]` + more + `}`
	}
	late := `"model": {"model": "mockllm/model", "modelArgsJson": "{\"outputs\": [{\"output\": {\"text\": \"late\", \"delay_s\": 3600}}]}"}`
	working := created("RunService.CreateRun", run(late))
	defer d.over(t, "RunService.CancelRun", `{"name": "`+working+`"}`)
	eval := created("EvalService.CreateEval", evalOf(one, ""))
	require.Equal(t, http.StatusOK, d.rest(t, http.MethodGet, "/api/v1/"+eval+":wait", "").status)
	created("RunService.CreateRun", `{"parent": "projects/default", "requestId": "once", "spec": `+spec("")+`}`)
	require.Equal(t, http.StatusOK, d.over(t, "LimitService.UpdateBudget", `{"budget": {"name": "projects/spent/budgets/project", "maxTokens": "1"}}`).status)
	inSpent := strings.Replace(generate(""), "default", "spent", 1)
	require.Equal(t, http.StatusOK, d.over(t, "ModelService.Generate", inSpent).status)

	box := created("SandboxService.CreateSandbox", `{"parent": "projects/default", "spec": {"driver": "local"}}`)
	defer d.over(t, "SandboxService.DeleteSandbox", `{"name": "`+box+`"}`)
	gone := created("SandboxService.CreateSandbox", `{"parent": "projects/default", "spec": {"driver": "local"}}`)
	require.Equal(t, http.StatusOK, d.over(t, "SandboxService.DeleteSandbox", `{"name": "`+gone+`"}`).status)

	const invalid, request = "INVALID_ARGUMENT", "INVALID_REQUEST"
	const refused = "FAILED_PRECONDITION"
	exec := func(sandbox, more string) string {
		return `{"sandbox": "` + sandbox + `", "spec": {"argv": ["true"]` + more + `}}`
	}
	for name, tt := range map[string]asked{
		"what the server is": {verb: http.MethodGet, path: "/api/v1/server", status: 200},
		"a run":              {call: "RunService.CreateRun", request: run(""), status: 200},
		"a run of a project that was never named": {call: "RunService.CreateRun", request: strings.Replace(run(""), "default", "another", 1), status: 200},
		"a run without a specification": {
			call: "RunService.CreateRun", request: `{"parent": "projects/default"}`, status: 400, code: invalid, reason: request,
			fields: []string{"spec"}, says: []string{"spec: is required"},
		},
		"an unknown model": {
			call: "RunService.CreateRun", request: run(`"model": {"model": "nosuch/x"}`), status: 400, code: invalid, reason: "MODEL_NOT_FOUND",
			fields: []string{"spec.model.model"}, says: []string{"known", "mockllm"},
		},
		"a model without a provider": {
			call: "RunService.CreateRun", request: run(`"model": {"model": "gpt-4o"}`), status: 400, code: invalid, reason: request,
			fields: []string{"spec.model.model"}, says: []string{"provider/name"},
		},
		"an unknown agent": {
			call: "RunService.CreateRun", request: run(`"steps": [{"name": "reactt"}]`), status: 400, code: invalid, reason: "AGENT_NOT_FOUND",
			fields: []string{"spec.steps[0].name"}, says: []string{"react"},
		},
		"an unknown parameter of an agent": {
			call: "RunService.CreateRun", request: run(`"steps": [{"name": "react", "paramsJson": "{\"attemps\": 2}"}]`), status: 400, code: invalid, reason: request,
			fields: []string{"spec.steps[0].params_json/attemps"}, says: []string{"attempts"},
		},
		"an unknown tool": {
			call: "RunService.CreateRun", request: run(`"tools": [{"name": "bsh"}]`), status: 400, code: invalid, reason: "TOOL_NOT_FOUND",
			fields: []string{"spec.tools[0].name"}, says: []string{"bash"},
		},
		"an unknown scorer": {
			call: "EvalService.CreateEval", request: evalOf(one, `, "scorers": [{"name": "mtch"}]`), status: 400, code: invalid, reason: "SCORER_NOT_FOUND",
			fields: []string{"spec.scorers[0].name"}, says: []string{"match"},
		},
		"a blob of no hash": {
			call: "EvalService.CreateEval", request: evalOf(`{"file": {"format": "DATASET_FORMAT_JSONL", "blob": {"hash": "00"}}}`, ""), status: 400, code: invalid, reason: request,
			fields: []string{"spec.dataset.file.blob.hash"}, says: []string{"want 64 hexadecimal digits"},
		},
		"an unknown field": {
			verb: http.MethodPost, path: runs, body: `{"spec": {"stepz": []}}`, status: 400, code: invalid, reason: request,
			fields: []string{"spec.stepz"}, says: []string{"unknown field; known: ", "steps"},
		},
		"a list for a number": {
			verb: http.MethodGet, path: runs + "?pageSize=x", status: 400, code: invalid, reason: request,
			fields: []string{"pageSize"}, says: []string{"want a whole number"},
		},
		"an unknown query parameter": {
			verb: http.MethodGet, path: runs + "?page_sizee=2", status: 400, code: invalid, reason: request,
			fields: []string{"page_sizee"}, says: []string{"known: pageSize"},
		},
		"a short enum": {verb: http.MethodGet, path: "/api/v1/" + working + "?view=FULL", status: 200},
		"an unknown enum": {
			verb: http.MethodGet, path: "/api/v1/" + working + "?view=ALL", status: 400, code: invalid, reason: request,
			fields: []string{"view"}, says: []string{"known: basic, full"},
		},
		"an unknown wait": {
			verb: http.MethodGet, path: runs + "?waitingFor=aproval", status: 400, code: invalid, reason: request,
			fields: []string{"waitingFor"}, says: []string{"approval"},
		},
		"a number of no wait": {call: "RunService.ListRuns", request: `{"parent": "projects/default", "waitingFor": 99}`, code: invalid, reason: request, fields: []string{"waiting_for"}},
		"a run that is not":   {call: "RunService.GetRun", request: `{"name": "projects/default/runs/nope"}`, status: 404, code: "NOT_FOUND", reason: "RESOURCE_NOT_FOUND", says: []string{"projects/default/runs/nope"}},
		"a name of another kind": {
			call: "RunService.GetRun", request: `{"name": "` + eval + `"}`, code: invalid, reason: request,
			fields: []string{"name"}, says: []string{"projects/{project}/runs/{id}"},
		},
		"a cursor of nowhere": {
			call: "RunService.WatchRun", request: `{"name": "` + working + `", "cursor": "xyz"}`, status: 400, code: invalid, reason: "INVALID_CURSOR",
			fields: []string{"cursor"}, says: []string{"begin again without it"},
		},
		"an unknown way to cancel": {
			verb: http.MethodPost, path: "/api/v1/" + working + ":cancel", body: `{"mode": "kill"}`, status: 400, code: invalid, reason: request,
			fields: []string{"mode"}, says: []string{"cancel, score, error"},
		},
		"a key of another request": {
			call: "RunService.CreateRun", request: `{"parent": "projects/default", "requestId": "once", "spec": ` + spec(`"prompt": "else"`) + `}`,
			status: 409, code: "ALREADY_EXISTS", reason: "REQUEST_ID_REUSED", says: []string{"another"},
		},
		"a message":            {call: "RunService.PostMessage", request: `{"name": "` + working + `", "text": "look", "requestId": "m"}`, status: 200},
		"a message, as before": {call: "RunService.PostMessage", request: `{"name": "` + working + `", "text": "look", "requestId": "m"}`, status: 200},
		"a message to nobody": {
			call: "RunService.PostMessage", request: `{"name": "` + working + `", "text": "look", "span": "99"}`, status: 400, code: invalid, reason: request,
			fields: []string{"span"}, says: []string{"99"},
		},
		"an interrupt of nobody": {
			call: "RunService.InterruptRun", request: `{"name": "` + working + `", "span": "99"}`, status: 400, code: invalid, reason: request,
			fields: []string{"span"}, says: []string{"99"},
		},
		"an interrupt in another's name": {
			call: "RunService.InterruptRun", request: `{"name": "` + working + `", "messages": [{"role": "ROLE_SYSTEM"}]}`, status: 400, code: invalid, reason: request,
			fields: []string{"messages[0].role"}, says: []string{"an operator speaks as the user"},
		},
		"an interrupt of no run":  {call: "RunService.InterruptRun", request: `{"name": "projects/default/runs/nope"}`, status: 404, code: "NOT_FOUND", reason: "RESOURCE_NOT_FOUND"},
		"no call":                 {call: "RunService.CancelCall", request: `{"name": "` + working + `"}`, status: 400, code: invalid, reason: request, fields: []string{"call_id"}, says: []string{"is required"}},
		"a call that is not open": {call: "RunService.CancelCall", request: `{"name": "` + working + `", "callId": "c"}`, status: 400, code: "FAILED_PRECONDITION", reason: "CALL_NOT_OPEN", says: []string{"c"}},
		"a call before the first": {call: "RunService.CancelCall", request: `{"name": "` + working + `", "callId": "c", "index": -1}`, status: 400, code: invalid, reason: request, fields: []string{"index"}},
		"a call of no run":        {call: "RunService.CancelCall", request: `{"name": "projects/default/runs/nope", "callId": "c"}`, status: 404, code: "NOT_FOUND", reason: "RESOURCE_NOT_FOUND"},
		"a message of nobody": {
			call: "ModelService.Generate", request: `{"parent": "projects/default", "model": "mockllm/model", "messages": [{"content": {"text": "q"}}]}`, status: 400, code: invalid, reason: request,
			fields: []string{"messages[0].role"},
		},
		"a call that does not end in time": {
			call: "ModelService.Generate", request: generate(`, "timeout": "0.05s", "modelArgsJson": "{\"outputs\": [{\"output\": {\"text\": \"late\", \"delay_s\": 3600}}]}"`),
			status: 504, code: "DEADLINE_EXCEEDED", reason: "DEADLINE_EXCEEDED", says: []string{"time"},
		},
		"a call of a spent budget": {call: "ModelService.Generate", request: inSpent, status: 429, code: "RESOURCE_EXHAUSTED", reason: "BUDGET_EXHAUSTED", says: []string{"projects/spent/budgets/project", "raise"}},
		"an address that may not be": {
			call: "ModelService.Generate", request: strings.Replace(generate(`, "baseUrl": "http://169.254.169.254/"`), "mockllm/model", "openai/gpt-4o", 1), status: 400, code: invalid, reason: request,
			fields: []string{"base_url"}, says: []string{"allowed_base_urls"},
		},
		"a budget of nothing": {
			call: "LimitService.UpdateBudget", request: `{"budget": {"name": "projects/default/budgets/nonsense", "maxTokens": "1"}}`, status: 400, code: invalid, reason: request,
			fields: []string{"budget.name"}, says: []string{"project or evals/{eval}"},
		},
		"an update of another than its path": {
			verb: http.MethodPatch, path: "/api/v1/projects/default/budgets/project", body: `{"name": "projects/default/budgets/evals/e", "maxTokens": "1"}`, status: 400, code: invalid, reason: request,
			fields: []string{"name"}, says: []string{"projects/default/budgets/evals/e", "the path names"},
		},
		"an epoch that none is above": {
			call: "ModelService.Generate", request: generate(`, "attribution": {"ownerEpoch": "4611686018427387904"}`), status: 400, code: invalid, reason: request,
			fields: []string{"attribution.owner_epoch"}, says: []string{"less than"},
		},
		"a number that looks octal": {
			verb: http.MethodGet, path: runs + "?pageSize=010", status: 400, code: invalid, reason: request,
			fields: []string{"pageSize"}, says: []string{"010", "in decimal"},
		},
		"an update of nothing": {
			call: "LimitService.UpdateBudget", request: `{"budget": {"name": "projects/default/budgets/project"}}`, status: 400, code: invalid, reason: request,
			fields: []string{"update_mask"}, says: []string{"set or name one of max"},
		},
		"an update of nothing, without a name": {
			verb: http.MethodPatch, path: "/api/v1/projects/default/budgets/project", body: `{}`, status: 400, code: invalid, reason: request,
			fields: []string{"updateMask"}, says: []string{"updateMask: nothing is to be changed; set or name one of maxTokens, maxCost"},
		},
		"a mask of no field": {
			verb: http.MethodPatch, path: "/api/v1/projects/default/budgets/project?updateMask=maxTokns", body: `{}`, status: 400, code: invalid, reason: request,
			fields: []string{"updateMask"}, says: []string{`"maxTokns" is no field of Budget; maxTokens, maxCost can be changed`},
		},
		"a mask of no field, as the schema spells it": {
			verb: http.MethodPatch, path: "/api/v1/projects/default/budgets/project?update_mask=max_tokns", body: `{}`, status: 400, code: invalid, reason: request,
			fields: []string{"updateMask"}, says: []string{`"max_tokns" is no field of Budget; maxTokens, maxCost can be changed`},
		},
		"a mask of no limit": {
			verb: http.MethodPost, path: "/api/v1/" + working + ":retuneLimits", body: `{"updateMask": "workTime"}`, status: 400, code: invalid, reason: request,
			fields: []string{"updateMask"}, says: []string{`"workTime" is no field of RunLimits`, "workingTime"},
		},
		"an update of what stays": {
			verb: http.MethodPatch, path: "/api/v1/" + eval, body: `{"spec": {"retryOnError": 2}}`, status: 400, code: invalid, reason: request,
			fields: []string{"updateMask"}, says: []string{`"spec.retryOnError" cannot be changed; spec.tags, spec.metadataJson, spec.maxSamples can`},
		},
		"a limit that is none": {
			call: "RunService.CreateRun", request: run(`"limits": {"turns": -1}`), status: 400, code: invalid, reason: request,
			fields: []string{"spec.limits.turns"}, says: []string{"0 or more"},
		},
		"a new limit that is none": {
			call: "RunService.RetuneLimits", request: `{"name": "projects/default/runs/absent", "limits": {"workingTime": "-1s"}}`, status: 400, code: invalid, reason: request,
			fields: []string{"limits.working_time"}, says: []string{"0 or more"},
		},
		"two samples of one id": {
			call: "EvalService.CreateEval", request: evalOf(`{"inline": {"samples": [`+
				`{"id": "a", "input": [{"role": "ROLE_USER", "content": {"text": "q"}}]}, {"id": "a", "input": [{"role": "ROLE_USER", "content": {"text": "r"}}]}]}}`, ""),
			status: 400, code: invalid, reason: request, fields: []string{"spec.dataset.inline.samples[1].id"}, says: []string{"an id of its own"},
		},
		"permission bits in octal": {
			call: "SandboxService.WriteFile", request: `{"sandbox": "projects/default/sandboxes/absent", "path": "a", "mode": 755}`, status: 400, code: invalid, reason: request,
			fields: []string{"mode"}, says: []string{"493 is 0755"},
		},
		"too little memory": {
			call: "SandboxService.CreateSandbox", request: `{"parent": "projects/default", "spec": {"driver": "local", "limits": {"memoryBytes": "1000"}}}`, status: 400, code: invalid, reason: request,
			fields: []string{"spec.limits.memory_bytes"}, says: []string{"at least"},
		},
		"a lease without a unit": {
			verb: http.MethodPost, path: "/api/v1/projects/default/sandboxes", body: `{"spec": {"lease": "600"}}`, status: 400, code: invalid, reason: request,
			fields: []string{"spec.lease"}, says: []string{"600s"},
		},
		"a text for arguments": {
			verb: http.MethodPost, path: "/api/v1/projects/default/sandboxes/absent:exec", body: `{"spec": {"argv": "true"}}`, status: 400, code: invalid, reason: request,
			fields: []string{"spec.argv"}, says: []string{"should be a list"},
		},
		"an update of an evaluation that ended": {
			call: "EvalService.UpdateEval", request: `{"eval": {"name": "` + eval + `", "spec": {"maxSamples": 2}}}`, status: 400, code: "FAILED_PRECONDITION", reason: "RUN_FINISHED",
			says: []string{"at work"},
		},
		"a model without a key": {
			call: "RunService.CreateRun", request: run(`"model": {"model": "openai/gpt-4o"}`), status: 400, code: refused, reason: "PROVIDER_NOT_CONFIGURED",
			fields: []string{"spec.model.model"}, says: []string{"OPENAI_API_KEY"},
		},
		"a call of a model without a key": {
			call: "ModelService.Generate", request: strings.Replace(generate(""), "mockllm/model", "openai/gpt-4o", 1), status: 400, code: refused, reason: "PROVIDER_NOT_CONFIGURED",
			fields: []string{"model"}, says: []string{"OPENAI_API_KEY"},
		},
		"an image where there is none": {
			call: "SandboxService.CreateSandbox", request: `{"parent": "projects/default", "spec": {"driver": "local", "image": "debian"}}`, status: 400, code: refused, reason: "CAPABILITY_UNSUPPORTED",
			fields: []string{"spec.image"}, says: []string{"spec.image: the local driver"},
		},
		"a command": {call: "SandboxService.Exec", request: exec(box, ""), status: 200},
		"a command of a stranger": {
			call: "SandboxService.Exec", request: exec(box, `, "user": "bob"`), status: 400, code: invalid, reason: request,
			fields: []string{"spec.user"}, says: []string{`no user "bob"; leave it out`},
		},
		"a file of a stranger": {
			call: "SandboxService.ReadFile", request: `{"sandbox": "` + box + `", "path": "a", "user": "bob"}`, status: 400, code: invalid, reason: request,
			fields: []string{"user"}, says: []string{`no user "bob"; leave it out`},
		},
		"no file":  {call: "SandboxService.ReadFile", request: `{"sandbox": "` + box + `", "path": "a"}`, status: 404, code: "NOT_FOUND", reason: "FILE_NOT_FOUND", says: []string{"a"}},
		"a folder": {call: "SandboxService.ReadFile", request: `{"sandbox": "` + box + `", "path": "/tmp"}`, status: 400, code: refused, reason: "IS_A_DIRECTORY", says: []string{"/tmp"}},
		"a command in a sandbox that is gone": {
			call: "SandboxService.Exec", request: exec(gone, ""), status: 400, code: refused, reason: "SANDBOX_TERMINATED", says: []string{gone, "make a new one"},
		},
		"a command in no sandbox": {
			call: "SandboxService.Exec", request: exec("projects/default/sandboxes/nope", ""), status: 404, code: "NOT_FOUND", reason: "RESOURCE_NOT_FOUND",
		},
		"a worker's result before its registration": {call: "WorkerService.Connect", request: `{"result": {"key": "k"}}`, code: invalid, reason: request, fields: []string{"register"}, says: []string{"the first frame"}},
		"a worker without an offer": {
			call: "WorkerService.Connect", request: `{"register": {}}`, code: invalid, reason: request, fields: []string{"register.offers"},
		},
		"an offer of an unknown kind": {
			call: "WorkerService.Connect", request: `{"register": {"offers": [{"kind": "tol", "name": "x"}]}}`, code: invalid, reason: request,
			fields: []string{"register.offers[0].kind"}, says: []string{"tool"},
		},
		"a tool that is not described": {
			call: "WorkerService.Connect", request: `{"register": {"offers": [{"kind": "tool", "name": "x", "parametersJson": "{}"}]}}`, code: invalid, reason: request,
			fields: []string{"register.offers[0]"}, says: []string{"description"},
		},
		"a policy that is none": {
			call:    "WorkerService.Connect",
			request: `{"register": {"offers": [{"kind": "tool", "name": "x", "description": "d", "parametersJson": "{}", "onUnknown": "ON_UNKNOWN_RETRY"}]}}`, code: invalid, reason: request,
			fields: []string{"register.offers[0].on_unknown"}, says: []string{"fail", "retry"},
		},
		"no route": {verb: http.MethodGet, path: "/nope", status: 404, code: "NOT_FOUND", reason: "ROUTE_NOT_FOUND", says: []string{"/openapi.json"}},
		"no verb":  {verb: http.MethodPut, path: runs, status: 405, code: "UNIMPLEMENTED", reason: "METHOD_NOT_ALLOWED"},
	} {
		check := func(door string, got said, fields []string) {
			t.Helper()
			what := name + ", over " + door + "\n" + got.String()
			assert.Equal(t, tt.code, got.code, what)
			assert.Equal(t, tt.reason, got.reason, what)
			assert.Equal(t, fields, got.fields, what)
			for _, text := range tt.says {
				assert.Contains(t, got.message, text, what)
			}
		}
		var inJSON []string
		for _, f := range tt.fields {
			inJSON = append(inJSON, spelledInJSON(tt.call, f))
		}
		switch {
		case tt.call == "":
			got := d.rest(t, tt.verb, tt.path, tt.body)
			check("REST", got, tt.fields)
			assert.Equal(t, tt.status, got.status, name)
		default:
			check("gRPC", d.typed(t, tt.call, tt.request), tt.fields)
			if tt.status != 0 {
				got := d.over(t, tt.call, tt.request)
				check("REST", got, inJSON)
				assert.Equal(t, tt.status, got.status, name)
			}
		}
	}
}

// A call without a token, or with an unknown one, is refused over gRPC and over REST with a message that says what to
// send.
func TestACallWithoutATokenIsRefusedAtBothDoors(t *testing.T) {
	t.Parallel()
	d := open(t)
	for token, says := range map[string]string{"": "send it as `authorization: Bearer …`", "wrong": "the token is not known"} {
		stranger := d.as(t, token)
		for call, request := range map[string]string{
			"AdminService.GetServerInfo": `{}`,
			"RunService.GetRun":          `{"name": "projects/default/runs/r"}`,
			"RunService.CreateRun":       `{"parent": "projects/default"}`,
			"RunService.WatchRun":        `{"name": "projects/default/runs/r"}`,
			"WorkerService.Connect":      `{"register": {}}`,
		} {
			answers := []said{stranger.typed(t, call, request)}
			if call != "WorkerService.Connect" {
				answers = append(answers, stranger.over(t, call, request))
				assert.Equal(t, http.StatusUnauthorized, answers[1].status, call)
			}
			for _, got := range answers {
				assert.Equal(t, []string{"UNAUTHENTICATED", "TOKEN_INVALID"}, []string{got.code, got.reason}, "%s with %q: %v", call, token, got)
				assert.Contains(t, got.message, says, call)
			}
		}
	}
}

// Waiting work is stopped over REST: a model call by an interrupt, a tool call on its own. Each answer has the number
// of the journaled event of the command.
func TestWorkThatWaitsIsStoppedOverREST(t *testing.T) {
	t.Parallel()
	d := open(t)
	get := func(path string) (answer struct {
		Name, Seq, State         string
		Interrupting, Cancelling bool
		MessageCount             int
		Wait                     struct{ Reason string }
		Events                   []struct {
			Seq             string
			CommandReceived struct{ Type string }
		}
	},
	) {
		t.Helper()
		got := d.rest(t, http.MethodGet, "/api/v1/"+path, "")
		require.Equal(t, http.StatusOK, got.status, got)
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
		return answer
	}
	post := func(path, body string) (answer struct {
		Name, Seq                string
		Interrupting, Cancelling bool
	},
	) {
		t.Helper()
		got := d.rest(t, http.MethodPost, "/api/v1/"+path, body)
		require.Equal(t, http.StatusOK, got.status, got)
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
		return answer
	}
	// command is the type of the command that an event records.
	command := func(run, seq string) string {
		for _, e := range get(run + "/events?pageSize=1000").Events {
			if e.Seq == seq {
				return e.CommandReceived.Type
			}
		}
		return ""
	}
	until := func(run, state string) {
		t.Helper()
		require.Eventually(t, func() bool { return get(run).State == state }, time.Minute, 10*time.Millisecond, "the run is %s", state)
	}
	outputs := func(all string) string {
		text, err := json.Marshal(`{"outputs": [` + all + `]}`)
		require.NoError(t, err)
		return `"model": {"model": "mockllm/model", "modelArgsJson": ` + string(text) + `}`
	}

	run := post("projects/default/runs", `{"spec": `+spec(outputs(`{"output": {"text": "late", "delay_s": 3600}}`))+`}`).Name
	require.Eventually(t, func() bool {
		return strings.Contains(d.rest(t, http.MethodGet, "/api/v1/"+run, "").body, `"model mockllm/model"`)
	}, time.Minute, 10*time.Millisecond)
	cut := post(run+":interrupt", `{"reason": "look here"}`)
	assert.False(t, cut.Interrupting, "a call of a model ends at once")
	assert.Equal(t, "COMMAND_TYPE_INTERRUPT", command(run, cut.Seq))
	until(run, "RUN_STATE_WAITING")
	assert.Equal(t, "WAIT_REASON_INPUT", get(run).Wait.Reason)
	post(run+":cancel", `{}`)

	w := workertest.Dial(t, workerv1.NewWorkerServiceClient(d.conn))
	w.Register(&workerv1.Register{Offers: []*workerv1.Offer{{Kind: "tool", Name: "slow", Description: "It is slow.", ParametersJson: `{"type":"object","properties":{},"additionalProperties":false}`}}})
	run = post("projects/default/runs", `{"spec": `+spec(`"tools": [{"name": "slow"}], `+outputs(`{"tool_calls": [{"id": "c1", "function": "slow", "arguments": {}}]}, "done"`))+`}`).Name
	call := w.Call()
	stopped := post(run+":cancelCall", `{"callId": "c1", "reason": "too slow"}`)
	assert.Equal(t, call.GetKey(), w.Next().GetCancel().GetKey(), "its worker hears of it")
	assert.False(t, stopped.Cancelling)
	assert.Equal(t, "COMMAND_TYPE_CANCEL_CALL", command(run, stopped.Seq))
	until(run, "RUN_STATE_SUCCEEDED")
}

// The retries of a call are those that its configuration allows: a provider that still refuses it fails the run.
func TestARateLimitWithoutRetriesFailsTheRun(t *testing.T) {
	t.Parallel()
	d := open(t)
	got := d.over(t, "RunService.CreateRun", `{"parent": "projects/default", "spec": `+
		spec(`"config": {"maxRetries": 0}, "model": {"model": "mockllm/model", "modelArgsJson": "{\"outputs\": [{\"output\": {\"error\": {\"status\": 429, \"message\": \"slow down\"}}}]}"}`)+`}`)
	require.Equal(t, http.StatusOK, got.status, got)
	var run struct {
		Name, State string
		Error       struct{ Reason string }
	}
	require.NoError(t, json.Unmarshal([]byte(got.body), &run))
	got = d.rest(t, http.MethodGet, "/api/v1/"+run.Name+":wait", "")
	require.Equal(t, http.StatusOK, got.status, got)
	require.NoError(t, json.Unmarshal([]byte(got.body), &run))
	assert.Equal(t, "RUN_STATE_FAILED", run.State, got.body)
	assert.Equal(t, "PROVIDER_RATE_LIMITED", run.Error.Reason)
}
