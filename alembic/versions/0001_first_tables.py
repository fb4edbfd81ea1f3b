"""The first tables: the cluster, events, incidents, actions, messages, people, the system."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KINDS: dict[str, sa.types.TypeEngine[Any]] = {
    "big": sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
    "bytes": sa.LargeBinary(),
    "count": sa.Integer(),
    "flag": sa.Boolean(),
    "float": sa.Float(),
    "json": sa.JSON(),
    "text": sa.String(),
    "time": sa.DateTime(timezone=True),
}
TABLES = """
    exclusion advice decision orders checks cluster node device attempt allocation
    devicespan nodespan version change outage maintenance cable event finding detectorstate cursor mark wrapreport
    incident entry message delivery alertgroup alertmember silence users sessions
    tries tokens audit audithead beat secret lease tasks label modelartifact
    run runjob rollup reckoning
"""


def upgrade() -> None:
    _actions()
    _advised()
    _cluster()
    _work()
    _past()
    _told()
    _events()
    _incidents()
    _messages()
    _people()
    _system()
    _learning()
    _reckoning()


def downgrade() -> None:
    for name in reversed(TABLES.split()):
        op.drop_table(name)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION IF EXISTS audit_append_only()")


def _table(name: str, columns: str, key: str, unique: str = "") -> None:
    """columns: words of name:kind, with a question mark where it may be NULL. key and unique: words.

    AUTOINCREMENT on SQLite: without it the id of a deleted last row is given again, and a cursor would pass it by.
    """
    rules: list[sa.Constraint] = [sa.PrimaryKeyConstraint(*key.split())]
    if unique:
        rules.append(sa.UniqueConstraint(*unique.split()))
    op.create_table(name, *(_column(word) for word in columns.split()), *rules, sqlite_autoincrement=key == "id")


def _column(word: str) -> sa.Column[Any]:
    name, kind = word.split(":")
    return sa.Column(name, KINDS[kind.removesuffix("?")], nullable=kind.endswith("?"))


def _advised() -> None:
    _table(
        "checks",
        """
        id:big cluster:text node:text peer:text name:text occasion:text at:time verdict:text text:text reading:json
        digest:text incident_id:big?
    """,
        key="id",
    )
    op.create_index("ix_checks_node", "checks", ["cluster", "node", "name", "id"])
    _table(
        "advice",
        "id:big cluster:text job:text revision:count at:time mark:text body:json",
        key="id",
        unique="cluster job revision",
    )


def _actions() -> None:
    _table(
        "exclusion",
        """
        id:big cluster:text node:text owner:text origin:text reason:text kind:text scope:text incident_id:big?
        created_at:time until:time lifted_at:time? lifted_by:text lift_reason:text past:json
    """,
        key="id",
    )
    op.create_index("ix_exclusion_incident_id", "exclusion", ["incident_id"])
    op.create_index("ix_exclusion_live", "exclusion", ["cluster", "node", "lifted_at"])
    _table(
        "decision",
        """
        id:big cluster:text incident_id:big revision:count at:time mode:text state:text sentence:text
        recommended:text plan:json advice:json blast:json guards:json dark:json approvals:json decided_by:text
        decided_at:time? note:text
    """,
        key="id",
        unique="cluster incident_id revision",
    )
    op.create_index("ix_decision_incident_id", "decision", ["incident_id"])
    _table(
        "orders",
        """
        id:big cluster:text key:text decision_id:big incident_id:big verb:text node:text job:text kind:text
        reason:text exclude:json after_id:big? undoes_id:big? state:text created_at:time not_before:time
        claimed_by:text claimed_at:time? lease_until:time? sent_at:time? ended_at:time? attempts:count
        witness:json guards:json outcome:text error:text
    """,
        key="id",
        unique="cluster key",
    )
    op.create_index("ix_orders_decision_id", "orders", ["decision_id"])
    op.create_index("ix_orders_incident_id", "orders", ["incident_id"])
    op.create_index("ix_orders_node", "orders", ["node"])
    op.create_index("ix_orders_state", "orders", ["cluster", "state", "not_before"])


def _cluster() -> None:
    _table(
        "cluster",
        """
        name:text simulated:flag kill_switch:flag kill_switch_by:text kill_switch_at:time?
        breaker:text breaker_at:time? breaker_reset_by:text breaker_reset_at:time?
    """,
        key="name",
    )
    _table(
        "node",
        """
        cluster:text name:text rack:text switch:text clique:text model:text partitions:json labels:json
        listed_by:json expected_gpus:count state:text flags:json reason:text reason_owner:text boot_at:time?
        state_at:time? first_seen:time last_seen:time retired_at:time?
    """,
        key="cluster name",
    )
    _table(
        "device",
        """
        cluster:text id:text kind:text node:text index:text pci:text model:text first_seen:time last_seen:time
        retired_at:time?
    """,
        key="cluster id",
    )
    op.create_index("ix_device_node", "device", ["node"])


def _work() -> None:
    _table(
        "attempt",
        """
        cluster:text job:text life:count restart:count unit:text array:text run:text name:text user:text account:text
        partition:text state:text reason:text exit_code:count? signal:count? requeued_by:text dependency:text
        submit:time? eligible:time? start:time? end:time? limit_s:float? gpus_per_node:count excluded:json roles:json
        outputs:json source:text attrs:json asks_nodes:count
    """,
        key="cluster job life restart",
    )
    op.create_index("ix_attempt_run", "attempt", ["run"])
    op.create_index("ix_attempt_state", "attempt", ["state"])
    op.create_index("ix_attempt_start", "attempt", ["cluster", "start"])
    _table(
        "allocation",
        """
        id:big cluster:text job:text life:count restart:count node:text gpus:json size:count start:time end:time?
    """,
        key="id",
    )
    op.create_index("ix_allocation_node", "allocation", ["cluster", "node", "size", "start", "end"])
    op.create_index("ix_allocation_size", "allocation", ["cluster", "size", "start"])
    op.create_index("ix_allocation_job", "allocation", ["cluster", "job", "life", "restart"])


def _past() -> None:
    _table("devicespan", "id:big cluster:text device:text node:text index:text pci:text start:time end:time?", key="id")
    op.create_index("ix_devicespan_device", "devicespan", ["cluster", "device", "start"])
    op.create_index("ix_devicespan_node", "devicespan", ["cluster", "node", "start"])
    _table("nodespan", "id:big cluster:text node:text rack:text switch:text clique:text start:time end:time?", key="id")
    op.create_index("ix_nodespan_node", "nodespan", ["cluster", "node", "start"])
    _table(
        "version",
        "cluster:text node:text device:text job:text item:text source:text value:text since:time",
        key="cluster node device job item source",
    )
    _table(
        "change",
        """
        id:big cluster:text node:text device:text job:text item:text value:text before:text at:time source:text
        text:text by:text
    """,
        key="id",
    )
    op.create_index("ix_change_at", "change", ["cluster", "at"])
    op.create_index("ix_change_node", "change", ["cluster", "node", "at"])


def _told() -> None:
    _table(
        "outage",
        "cluster:text node:text source:text start:time end:time? state:text reason:text user:text",
        key="cluster node source start",
    )
    _table(
        "maintenance",
        "cluster:text source:text name:text nodes:json start:time end:time? text:text",
        key="cluster source name",
    )
    _table(
        "wrapreport",
        """
        cluster:text id:text job:text restart:count task:count? tasks:count? host:text at:time received_at:time
        exit_code:count log_class:text joined:flag report:json
    """,
        key="cluster id",
    )
    op.create_index("ix_wrapreport_job", "wrapreport", ["cluster", "job", "restart"])
    waiting = sa.text("NOT joined")
    op.create_index("ix_wrapreport_waiting", "wrapreport", ["cluster"], sqlite_where=waiting, postgresql_where=waiting)
    _table(
        "cable",
        """
        id:big cluster:text kind:text node:text port:text peer:text peer_port:text rail:text source:text start:time
        end:time?
    """,
        key="id",
    )
    op.create_index("ix_cable_node", "cable", ["cluster", "node"])
    op.create_index("ix_cable_peer", "cable", ["cluster", "peer"])


def _events() -> None:
    _table(
        "event",
        """
        id:big cluster:text at:time received_at:time namespace:text code:text node:text entity_kind:text
        entity_id:text entity_name:text job:text text:text source:text late:flag dedupe:text attrs:json
    """,
        key="id",
        unique="cluster dedupe",
    )
    op.create_index("ix_event_node_at", "event", ["cluster", "node", "at"])
    verdicts = sa.text("namespace = 'log'")
    op.create_index("ix_event_verdict", "event", ["cluster", "job"], sqlite_where=verdicts, postgresql_where=verdicts)
    _table(
        "finding",
        """
        id:big cluster:text key:text detector:text kind:text entity_kind:text entity_id:text entity_name:text
        node:text severity:text score:float since:time reason:text evidence:json raised_at:time emitted_at:time
        cleared_at:time? incident_id:big? victim:flag
    """,
        key="id",
    )
    op.create_index("ix_finding_cleared_at", "finding", ["cleared_at"])
    op.create_index("ix_finding_incident_id", "finding", ["incident_id"])
    op.create_index("ix_finding_key", "finding", ["cluster", "key", "raised_at"])
    op.create_index("ix_finding_raised", "finding", ["cluster", "raised_at", "node"])
    _table(
        "detectorstate",
        """
        cluster:text detector:text at:time cursor:big fleet:json arrays:bytes
    """,
        key="cluster detector",
    )
    _table(
        "cursor",
        """
        cluster:text name:text position:big at:time?
    """,
        key="cluster name",
    )
    _table(
        "mark",
        """
        cluster:text source:text name:text position:text at:time
    """,
        key="cluster source name",
    )


def _incidents() -> None:
    _table(
        "incident",
        """
        id:big cluster:text kind:text severity:text state:text headline:text entity_kind:text entity_id:text
        entity_name:text node:text job:text run:text opened_at:time changed_at:time last_asserted_at:time
        clear_s:float blind:flag closed_at:time? acknowledged_by:text acknowledged_at:time? mitigated_at:time?
        resolving_by:text close_note:text drill:text revision:count decided_revision:count hypotheses:json entities:json
        victims:json dark:json
    """,
        key="id",
    )
    op.create_index("ix_incident_entity", "incident", ["cluster", "kind", "entity_id", "opened_at"])
    op.create_index("ix_incident_state", "incident", ["cluster", "state", "opened_at"])
    _table(
        "entry",
        """
        id:big cluster:text incident_id:big at:time what:text actor:text text:text attrs:json
    """,
        key="id",
    )
    op.create_index("ix_entry_incident_id", "entry", ["incident_id"])


def _messages() -> None:
    _table(
        "message",
        """
        id:big cluster:text incident_id:big kind:text revision:count route:text group_id:big? created_at:time body:json
    """,
        key="id",
        unique="cluster incident_id kind revision route",
    )
    op.create_index("ix_message_group_id", "message", ["group_id"])
    op.create_index("ix_message_incident_id", "message", ["incident_id"])
    _table(
        "delivery",
        """
        id:big cluster:text message_id:big incident_id:big channel:text thread:text to:json state:text not_before:time
        claimed_by:text
        lease_until:time? attempts:count sent_at:time? receipt:json error:text
    """,
        key="id",
        unique="message_id channel",
    )
    op.create_index("ix_delivery_incident_id", "delivery", ["incident_id"])
    op.create_index("ix_delivery_message_id", "delivery", ["message_id"])
    op.create_index("ix_delivery_state", "delivery", ["state", "not_before"])
    op.create_index("ix_delivery_thread", "delivery", ["thread", "channel"])
    _alerts()


def _alerts() -> None:
    group = """
        id:big cluster:text route:text key:text state:text lead:big opened_at:time joined_at:time due_at:time?
        told_at:time? repeat_at:time? escalate_at:time? step:count revision:count told_count:count told_severity:text
        told_decision:big stirred:flag why:text
    """
    _table("alertgroup", group, key="id")
    for name, columns in (("due", "state due_at"), ("key", "cluster route key state"), ("lead", "lead")):
        op.create_index(f"ix_alertgroup_{name}", "alertgroup", columns.split())
    member = "group_id:big incident_id:big cluster:text joined_at:time state:text why:text held_until:time?"
    _table("alertmember", f"{member} changed_revision:count", key="group_id incident_id")
    op.create_index("ix_alertmember_incident_id", "alertmember", ["incident_id"])
    silence = """
        id:big cluster:text kind:text matches:json comment:text created_by:text created_at:time starts_at:time
        ends_at:time ended_at:time? ended_by:text
    """
    _table("silence", silence, key="id")
    op.create_index("ix_silence_ends", "silence", ["cluster", "ends_at"])


def _people() -> None:
    _table(
        "users",
        """
        id:big name:text role:text password_hash:text origin:text subject:text clusters:json projects:json nodes:json
        created_at:time disabled_at:time?
    """,
        key="id",
    )
    op.create_index("ix_users_name", "users", ["name"], unique=True)
    _table(
        "sessions",
        """
        id_hash:text user_id:big csrf:text created_at:time expires_at:time ends_at:time last_used_at:time
        address:text agent:text
    """,
        key="id_hash",
    )
    _table("tries", "key:text failures:count at:time locked_until:time?", key="key")
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    _table(
        "tokens",
        """
        id:big name:text scope:text token_hash:text clusters:json projects:json nodes:json created_at:time
        created_by:text expires_at:time? last_used_at:time? revoked_at:time?
    """,
        key="id",
    )
    op.create_index("ix_tokens_token_hash", "tokens", ["token_hash"], unique=True)
    _table(
        "audit",
        """
        id:big at:time actor:text action:text target:text details:json previous:text hash:text
    """,
        key="id",
    )
    _table("audithead", "id:big last_id:big hash:text", key="id")
    _append_only("audit")


def _append_only(table: str) -> None:
    """The database itself refuses to change or drop a row."""
    said = f"{table} is append-only"
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            fires = f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table}"
            op.execute(f"{fires} BEGIN SELECT RAISE(ABORT, '{said}'); END")
        return
    op.execute(
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{said}'; END $$"
    )
    fires = f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}"
    op.execute(f"{fires} FOR EACH ROW EXECUTE FUNCTION {table}_append_only()")


def _system() -> None:
    _table(
        "beat",
        """
        cluster:text kind:text name:text at:time ok_at:time? failing_since:time? every_s:float took_s:float
        errors:count error:text counts:json
    """,
        key="cluster kind name",
    )
    _table("secret", "name:text value:text created_at:time", key="name")
    _table("lease", "cluster:text holder:text who:text term:count since:time until:time", key="cluster")
    _table(
        "tasks",
        """
        id:big cluster:text kind:text at:time by:text asked:json state:text share:float said:text who:text
        began_at:time? ended_at:time? cancelled_by:text result:json adopted_at:time? adopted_by:text
    """,
        key="id",
    )
    op.create_index("ix_tasks_state", "tasks", ["cluster", "state"])


def _learning() -> None:
    _table(
        "label",
        """
        id:big cluster:text at:time by:text incident_id:big? job:text right:flag said:text cause:text note:text
        event_id:big?
    """,
        key="id",
    )
    op.create_index("ix_label_incident", "label", ["cluster", "incident_id"])
    op.create_index("ix_label_job", "label", ["cluster", "job"])
    _table(
        "modelartifact",
        """
        id:big cluster:text name:text version:count at:time n:count labels_to:big facts:json arrays:bytes
    """,
        key="id",
        unique="cluster name version",
    )


def _reckoning() -> None:
    _table(
        "run",
        """
        cluster:text name:text user:text account:text state:text nodes:count gpus:count began_at:time? moved_at:time
        failed_at:time? failed_why:text attempts:count failures:count infra_failures:count ettr_low:float?
        ettr_high:float? lost_low_gpu_s:float lost_high_gpu_s:float digest:text document:json
    """,
        key="cluster name",
    )
    op.create_index("ix_run_moved", "run", ["cluster", "moved_at"])
    op.create_index("ix_run_state", "run", ["cluster", "state"])
    _table("runjob", "cluster:text job:text run:text", key="cluster job")
    op.create_index("ix_runjob_run", "runjob", ["run"])
    _table(
        "rollup",
        """
        cluster:text job:text node:text hour:time held_gpu_s:float productive_low_gpu_s:float
        productive_high_gpu_s:float queue_gpu_s:float failures:count infra_failures:count findings:count
        incidents:count out_s:float
    """,
        key="cluster job node hour",
    )
    op.create_index("ix_rollup_hour", "rollup", ["cluster", "hour"])
    _table(
        "reckoning",
        """
        cluster:text days:count at:time took_s:float document:json
    """,
        key="cluster days",
    )
