package lifecycle

// State is the state of a sandbox. The numbers are stored.
type State int

// States. Deleted, lost and failed ones keep only their record.
const (
	Creating State = 1
	Ready    State = 2
	Paused   State = 3
	Deleting State = 4
	Deleted  State = 5
	Lost     State = 6
	Failed   State = 7
)

// States lists all states.
var States = []State{Creating, Ready, Paused, Deleting, Deleted, Lost, Failed}

// String is the state's name in lower case.
func (s State) String() string {
	return map[State]string{
		Creating: "creating", Ready: "ready", Paused: "paused", Deleting: "deleting", Deleted: "deleted", Lost: "lost", Failed: "failed",
	}[s]
}

// Over reports whether only the record is left.
func (s State) Over() bool { return s == Deleted || s == Lost || s == Failed }

// Action is an event that changes the state of a sandbox.
type Action int

// Actions.
const (
	// Remake begins the making again after a crash or a failure.
	Remake Action = iota + 1
	// Made ends the making.
	Made
	// Fail ends the making without a sandbox.
	Fail
	// Lose finds that the box is gone.
	Lose
	// Delete begins the removal: asked for, or a lease has ended.
	Delete
	// Removed ends the removal.
	Removed
)

// Actions lists all actions.
var Actions = []Action{Remake, Made, Fail, Lose, Delete, Removed}

// String is the action's name in lower case.
func (a Action) String() string {
	return map[Action]string{Remake: "remake", Made: "made", Fail: "fail", Lose: "lose", Delete: "delete", Removed: "removed"}[a]
}

// moves are all moves that there are:
//
//	         ┌─Remake─┐
//	      (new)       │        Lose
//	        ▼    Fail │    ┌──────────▶ Lost
//	     Creating ──▶ Failed          │
//	        │ Made     │   │          │
//	        ▼          │   │          │
//	Paused, Ready ─────┼───┘          │
//	        │ Delete   │ Delete       │ Delete
//	        ▼          ▼              ▼
//	     Deleting ◀────┴──────────────┘
//	        │ Removed
//	        ▼
//	     Deleted
var moves = map[State]map[Action]State{
	Creating: {Remake: Creating, Made: Ready, Fail: Failed, Delete: Deleting},
	Ready:    {Lose: Lost, Delete: Deleting},
	Paused:   {Lose: Lost, Delete: Deleting},
	Failed:   {Remake: Creating, Delete: Deleting},
	Lost:     {Delete: Deleting},
	Deleting: {Removed: Deleted},
}

// Move returns the state that an action leads to; ok is false if the action is not possible.
func (s State) Move(a Action) (next State, ok bool) {
	next, ok = moves[s][a]
	return next, ok
}
