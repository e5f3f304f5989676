"""The planted faults, and what catches each: a generator with a seed, or a schedule to order.

A fault that nothing catches has a reason why it does no harm. When the product changes the flow of its
messages, a seed is another schedule: the test goes on to the seeds after it.
"""

from __future__ import annotations

from msgspec import Struct

from broker.protocol.vocabulary import Protocol
from tests.mutations import (
    behind,
    clients,
    crashes,
    departures,
    links,
    operations,
    ordering,
    parting,
    patience,
    planned,
    resting,
    retiring,
    returning,
    schedules,
    tables,
    telling,
)
from tests.mutations.patching import Mutation

PATIENCE = 150
"""So many seeds from the named one on are tried."""


class Caught(Struct, frozen=True):
    mutation: Mutation
    generator: str
    protocol: Protocol
    seed: int
    property: str
    """Which check objects."""
    restart: float = 0.0
    """How often brokers crash; 0: they keep no journals."""


class Scheduled(Struct, frozen=True):
    mutation: Mutation
    schedule: schedules.Schedule
    property: str


class Harmless(Struct, frozen=True):
    mutation: Mutation
    generators: tuple[str, ...]
    protocol: Protocol
    reason: str
    restart: float = 0.0


MODULES = (
    operations, ordering, tables, planned, clients, retiring, returning, telling, links, resting, parting,
    patience, crashes,
)  # fmt: skip

CAUGHT = (
    # Operations of D-TX and D-TX_NI
    Caught(operations.leaf_never_acknowledges, "dispatch", "d-tx", 0, "liveness"),
    Caught(operations.first_acknowledgement_is_enough, "mixed", "d-tx", 10, "consistency"),
    Caught(operations.acknowledged_on_arrival, "move", "d-tx", 0, "consistency"),
    Caught(operations.triggered_records_share_the_entry, "advertise", "d-tx", 0, "liveness"),
    Caught(operations.attracts_only_what_was_never_sent, "overlapping", "d-tx", 11, "convergence"),
    Caught(operations.attracts_no_unsubscriptions, "carve", "d-tx", 13, "convergence"),
    Caught(operations.attracts_no_unsubscriptions, "carve", "s-tx", 3, "liveness"),
    Caught(operations.contexts_are_created_late, "crash", "d-tx", 5, "liveness"),
    Caught(operations.no_tombs, "crash", "d-tx", 4, "liveness"),
    Caught(operations.tombs_do_not_wait_for_clients, "crash", "d-tx", 4, "liveness"),
    Caught(operations.edge_does_not_act_for_a_lost_coordinator, "crash", "d-tx", 4, "liveness"),
    Caught(operations.edge_waits_for_a_lost_participant, "crash", "d-tx", 17, "liveness"),
    Caught(operations.lost_participants_are_overlooked, "circular", "d-tx", 5, "consistency"),
    Caught(operations.records_of_the_lost_stay_in_sight, "lost", "d-tx", 229, "liveness"),
    Caught(operations.failures_of_participants_get_lost, "circular", "d-tx", 5, "consistency"),
    # Order, votes and decisions of D-TX
    Caught(ordering.merge_replaces_the_tables, "dispatch", "d-tx", 1, "convergence"),
    Caught(ordering.validation_without_own_writes, "dispatch", "d-tx", 0, "liveness"),
    Caught(ordering.no_validation, "skew", "d-tx", 1, "serializability"),
    Caught(ordering.publications_are_not_validated, "skew", "d-tx", 1, "serializability"),
    Caught(ordering.controls_are_not_validated, "overlapping", "d-tx", 50, "serializability"),
    Caught(ordering.admission_is_not_validated, "overlapping", "d-tx", 13, "serializability"),
    Caught(ordering.attractions_are_not_validated, "crossing", "d-tx", 77, "serializability"),
    Caught(ordering.no_epochs, "skew", "d-tx", 4, "liveness"),
    Caught(ordering.nobody_waits_for_the_undecided, "skew", "d-tx", 3, "serializability"),
    Caught(ordering.nobody_waits_for_the_undecided, "skew", "d-tx-optimistic", 3, "serializability"),
    Caught(ordering.no_late_rule, "skew", "d-tx", 34, "serializability"),
    Caught(ordering.no_late_rule, "skew", "d-tx-optimistic", 1, "serializability"),
    Caught(ordering.late_only_for_the_undecided, "move", "d-tx-optimistic", 14, "serializability"),
    Caught(ordering.interference_is_overlooked, "skew", "d-tx-optimistic", 1, "serializability"),
    Caught(ordering.reads_do_not_interfere, "skew", "d-tx-optimistic", 1, "serializability"),
    Caught(ordering.the_forgotten_are_never_met, "move", "d-tx-optimistic", 14, "serializability"),
    Caught(ordering.contexts_stay_after_an_abort, "skew", "d-tx", 0, "liveness"),
    Caught(ordering.votes_of_others_do_not_count, "move", "d-tx", 26, "serializability"),
    Caught(ordering.participants_are_not_told, "skew", "d-tx", 0, "serializability"),
    Caught(ordering.abort_is_not_passed_on, "skew", "d-tx", 0, "liveness"),
    Caught(ordering.newer_regular_advertisements_are_overlooked, "overtaken", "d-tx", 0, "consistency"),
    Caught(
        ordering.newer_regular_advertisements_are_overlooked,
        "overtaken",
        "d-tx-optimistic",
        0,
        "consistency",
    ),
    # Tables
    Caught(tables.records_count_in_order_of_arrival, "carve", "d-tx", 99, "convergence"),
    Caught(tables.records_count_in_order_of_arrival, "carve", "d-tx-ni", 99, "convergence"),
    Caught(tables.records_count_in_order_of_arrival, "turns", "s-tx", 49, "convergence"),
    Caught(tables.aborts_undo_nothing, "aborts", "d-tx-ni", 0, "convergence"),
    Caught(tables.aborts_undo_nothing, "aborts", "s-tx", 13, "convergence"),
    Caught(tables.aborts_undo_at_the_edge_only, "aborts", "d-tx-ni", 3, "convergence"),
    Caught(tables.aborts_undo_at_the_edge_only, "crash", "s-tx", 26, "convergence"),
    Caught(tables.only_what_came_in_the_transaction_is_undone, "carve", "s-tx", 47, "atomicity"),
    Caught(tables.withdrawals_take_effect_at_once, "beside", "s-tx", 4, "atomicity"),
    Caught(tables.others_see_what_may_not_be_taken_back, "beside", "d-tx-ni", 2, "recipients"),
    Caught(tables.others_see_what_may_not_be_taken_back, "beside", "s-tx", 8, "recipients"),
    Caught(tables.a_batch_loses_its_last, "bursts", "d-tx", 0, "recipients"),
    Caught(tables.steps_see_what_comes_after_them, "disjoint", "s-tx", 29, "recipients"),
    Caught(tables.committed_records_lose_their_name, "carve", "s-tx", 11, "atomicity"),
    Caught(tables.committed_records_pass_for_undecided_ones, "carve", "s-tx", 32, "liveness"),
    # S-TX at brokers
    Caught(planned.hop_test_is_inverted, "dispatch", "s-tx", 0, "atomicity"),
    Caught(planned.steps_of_own_clients_are_not_awaited, "disjoint", "s-tx", 7, "recipients"),
    Caught(planned.advertisements_are_not_awaited, "carve", "s-tx", 46, "atomicity"),
    Caught(planned.what_waits_is_looked_at_once, "disjoint", "s-tx", 2, "liveness"),
    Caught(planned.advertisements_have_no_echo, "advertise", "s-tx", 9, "recipients"),
    Caught(planned.echoes_do_not_wait, "advertise", "s-tx", 9, "recipients"),
    Caught(planned.controls_reach_everybody, "dispatch", "s-tx", 0, "recipients"),
    Caught(planned.aborts_compensate, "aborts", "s-tx", 3, "convergence"),
    Caught(planned.aborts_wait_for_the_missing, "aborts", "s-tx", 3, "liveness"),
    Caught(planned.attracted_steps_are_not_recognised, "advertise", "s-tx", 33, "atomicity"),
    Caught(planned.committed_brokers_drop_steps, "carve", "s-tx", 19, "convergence"),
    Caught(planned.missing_steps_are_not_declared, "lost", "s-tx", 0, "liveness"),
    Caught(planned.late_subscriptions_are_dropped, "crossing", "s-tx", 1453, "convergence"),
    Caught(planned.the_end_overtakes_what_waits, "crossing", "s-tx-safe", 2744, "recipients"),
    Caught(planned.void_steps_do_not_spoil_a_vote, "crash", "s-tx-safe", 5, "atomicity"),
    Caught(planned.edge_does_not_abort_for_a_lost_planner, "crash", "s-tx", 23, "liveness"),
    Caught(planned.commits_do_not_miss_the_lost, "circular", "s-tx", 64, "recipients"),
    Caught(planned.subscriptions_stop_on_their_way, "dispatch", "s-tx", 0, "convergence"),
    Caught(planned.stamps_repeat, "dispatch", "s-tx", 1, "liveness"),
    Caught(planned.commits_wait_for_nothing, "disjoint", "s-tx", 10, "recipients"),
    # Clients that come back
    Caught(returning.plans_ask_whoever_has_the_id, "returning", "s-tx", 21, "liveness"),
    Caught(returning.plans_ask_who_has_not_joined, "returning", "s-tx-safe", 37, "liveness"),
    Caught(returning.steps_of_a_former_life_are_awaited, "returning", "s-tx", 13, "liveness"),
    Caught(returning.who_comes_back_takes_its_earlier_part_on, "returning", "s-tx-safe", 69, "liveness"),
    Caught(
        returning.a_former_life_counts_as_a_client_of_the_new_ones_broker,
        "returning",
        "s-tx",
        1340,
        "liveness",
    ),
    Caught(returning.brokers_do_not_tell_whose_plan_it_is, "dispatch", "s-tx-safe", 0, "liveness"),
    # Clients that go, and two that want one id
    Caught(parting.voids_stop_on_their_way_to_the_coordinator, "stranded", "s-tx", 79, "liveness"),
    Caught(parting.who_was_asked_may_go, "lost", "d-tx-ni", 33, "answers"),
    Caught(parting.who_has_sent_its_steps_may_go, "lost", "s-tx-safe", 2, "answers"),
    Caught(parting.who_is_refused_takes_the_records_of_the_accepted_one, "twins", "d-tx", 11, "tables"),
    Caught(parting.who_is_refused_takes_the_records_of_the_accepted_one, "twins", "s-tx", 11, "tables"),
    # Clients that do not wait any longer
    Caught(patience.what_is_given_up_counts_as_aborted, "hurried", "d-tx", 13, "answers"),
    Caught(patience.what_is_given_up_counts_as_aborted, "hurried", "d-tx-ni", 13, "answers"),
    Caught(patience.plans_that_are_given_up_count_as_aborted, "hurried", "s-tx", 5, "answers"),
    Caught(patience.plans_that_are_given_up_count_as_aborted, "hurried", "s-tx-safe", 16, "answers"),
    Caught(patience.plans_are_given_up_in_silence, "hurried", "s-tx", 1, "answers"),
    Caught(patience.plans_are_given_up_in_silence, "hurried", "s-tx-safe", 4, "answers"),
    Caught(patience.what_was_given_up_is_forgotten, "hurried", "d-tx", 3, "liveness"),
    Caught(patience.who_gives_up_a_refused_begin_is_thrown_out, "hurried", "d-tx", 33, "liveness"),
    # Clients
    Caught(clients.frames_share_one_queue, "disjoint", "d-tx", 2, "liveness"),
    Caught(clients.operations_are_not_awaited, "dispatch", "d-tx", 1, "consistency"),
    Caught(clients.controls_are_acknowledged_before_the_reaction, "dispatch", "d-tx", 0, "consistency"),
    Caught(clients.coordinator_goes_on_after_its_abort, "circular", "d-tx", 37, "liveness"),
    Caught(clients.aborted_publications_are_delivered, "move", "d-tx", 2, "atomicity"),
    Caught(clients.publications_are_delivered_at_once, "move", "d-tx", 2, "atomicity"),
    Caught(clients.publications_are_delivered_twice, "dispatch", "d-tx", 0, "atomicity"),
    Caught(clients.publications_of_plans_are_delivered_twice, "dispatch", "s-tx", 0, "atomicity"),
    Caught(clients.kept_publications_get_lost, "consolidate", "d-tx", 0, "serializability"),
    Caught(clients.publications_are_regular, "dispatch", "d-tx", 0, "serializability"),
    Caught(clients.decisions_are_not_answered, "dispatch", "d-tx", 0, "liveness"),
    Caught(clients.objections_are_overlooked, "skew", "d-tx", 1, "liveness"),
    Caught(clients.publications_of_others_are_not_awaited, "consolidate", "s-tx", 1, "recipients"),
    Caught(clients.publications_of_plans_are_not_sorted, "disjoint", "s-tx", 7, "consistency"),
    Caught(clients.plans_are_given_up_too_soon, "dispatch", "s-tx", 8, "atomicity"),
    Caught(clients.participants_of_plans_deliver_at_once, "mixed", "s-tx", 4, "atomicity"),
    # What is told: the order in which a client speaks
    Caught(telling.regular_stamps_ignore_the_committed_key, "sequel", "d-tx", 2, "convergence"),
    Caught(telling.stamps_go_backwards, "sequel", "d-tx", 0, "convergence"),
    Caught(telling.stamps_of_isolated_transactions_go_backwards, "turns", "d-tx", 1, "convergence"),
    Caught(telling.steps_are_stamped_as_they_come, "turns", "s-tx", 2, "convergence"),
    Caught(telling.steps_are_stamped_as_they_come, "turns", "s-tx-safe", 0, "consistency"),
    # Answers
    Caught(telling.reached_is_not_added_up, "dispatch", "d-tx", 0, "answers"),
    Caught(telling.reached_is_not_added_up, "dispatch", "d-tx-optimistic", 0, "answers"),
    Caught(telling.reached_is_not_added_up, "dispatch", "d-tx-ni", 0, "answers"),
    Caught(telling.the_last_answer_is_the_number_reached, "overlapping", "d-tx", 16, "answers"),
    Caught(telling.it_has_begun_before_the_last_broker_knows, "dispatch", "d-tx", 0, "answers"),
    Caught(telling.it_has_begun_before_the_last_broker_knows, "dispatch", "d-tx-ni", 0, "answers"),
    Caught(telling.it_has_begun_before_the_last_broker_knows, "dispatch", "d-tx-optimistic", 0, "answers"),
    Caught(telling.the_last_vote_is_not_awaited, "skew", "d-tx", 15, "answers"),
    Caught(telling.the_last_vote_is_not_awaited, "skew", "d-tx-ni", 8, "answers"),
    Caught(telling.the_last_vote_is_not_awaited, "skew", "d-tx-optimistic", 15, "answers"),
    Caught(telling.the_last_vote_on_a_plan_is_not_awaited, "dispatch", "s-tx-safe", 0, "answers"),
    Caught(telling.a_no_is_told_as_a_yes, "skew", "d-tx", 1, "answers"),
    Caught(telling.a_no_to_a_plan_is_told_as_a_yes, "lost", "s-tx-safe", 2, "answers"),
    Caught(telling.committed_is_told_before_brokers_have, "dispatch", "d-tx", 0, "answers"),
    Caught(telling.plans_have_ended_before_receivers_have_it, "dispatch", "s-tx", 2, "answers"),
    Caught(telling.plans_have_ended_before_receivers_have_it, "dispatch", "s-tx-safe", 2, "answers"),
    Caught(telling.receivers_of_plans_forget_what_they_kept, "overlapping", "s-tx", 2, "answers"),
    # Events whose owner is moved
    Caught(telling.undecided_subscriptions_are_not_seen, "handover", "d-tx-ni", 8, "recipients"),
    Caught(telling.undecided_subscriptions_are_not_seen, "handover", "s-tx-safe", 8, "recipients"),
    Caught(telling.batches_do_not_see_undecided_subscriptions, "handover", "s-tx-safe", 30, "recipients"),
    Caught(telling.owners_go_when_the_home_commits, "handover", "d-tx", 8, "recipients"),
    # What clients may do when all is over
    Caught(telling.committed_advertisements_do_not_permit, "advertise", "d-tx", 0, "last act"),
    Caught(telling.committed_advertisements_do_not_permit, "advertise", "s-tx", 0, "last act"),
    Caught(telling.libraries_do_not_learn_what_was_committed, "advertise", "d-tx-ni", 0, "last act"),
    Caught(telling.libraries_believe_whoever_is_settled_last, "turns", "s-tx", 0, "last act"),
    Caught(telling.withdrawals_still_permit_in_transactions, "carve", "d-tx", 0, "last act"),
    Caught(telling.one_that_may_lets_the_others_of_its_batch_through, "dispatch", "d-tx", 0, "last act"),
    # Links
    Caught(links.what_was_processed_is_said_again, "pressed", "d-tx", 0, "recipients"),
    Caught(links.nothing_is_said_again, "pressed", "d-tx", 0, "recipients"),
    Caught(links.what_was_received_is_not_asked_for_again, "pressed", "d-tx", 4, "links"),
    Caught(links.frames_are_processed_before_they_are_handled, "pressed", "d-tx", 4, "recipients"),
    Caught(links.held_frames_outlive_their_connection, "pressed", "d-tx", 4, "links"),
    Caught(links.held_frames_are_handled_newest_first, "pressed", "d-tx", 12, "links"),
    Caught(links.what_was_full_never_has_room_again, "pressed", "s-tx", 0, "liveness"),
    Caught(links.who_is_gone_is_waited_for, "pressed", "d-tx", 8, "liveness"),
    Caught(links.what_drained_before_a_new_connection_is_waited_for, "pressed", "d-tx", 18, "recipients"),
    Caught(links.windows_never_open_again, "pressed", "s-tx", 0, "links"),
    Caught(links.acknowledgements_wait_for_an_answer, "pressed", "s-tx", 0, "links"),
    Caught(links.queues_wait_for_the_next_message, "pressed", "s-tx", 0, "liveness"),
    Caught(links.messages_overtake_those_that_wait, "pressed", "d-tx", 1, "links"),
    Caught(links.what_waits_is_lost_with_a_connection, "pressed", "d-tx", 4, "recipients"),
    Caught(links.what_waits_is_not_sent_on_a_new_connection, "pressed", "d-tx", 3, "links"),
    Caught(links.publications_pass_the_operations_of_their_frame, "pressed", "d-tx", 2, "links"),
    Caught(links.frames_go_the_way_of_their_first_publication, "pressed", "d-tx", 0, "recipients"),
    Caught(links.frames_lose_the_last_publication_of_each_way, "pressed", "d-tx", 0, "recipients"),
    Caught(links.refusals_in_a_frame_are_kept_to_oneself, "pressed", "d-tx", 3, "links"),
    Caught(patience.windows_are_not_heeded, "pressed", "d-tx", 4, "links"),
    Caught(patience.what_need_not_be_queued_passes_the_window, "pressed", "d-tx", 1, "links"),
    Caught(patience.patience_never_ends, "pressed", "d-tx", 7, "links"),
    # What is over, and what has time
    Caught(resting.begin_ends_with_the_first_answer, "hurried", "d-tx", 16, "liveness"),
    Caught(resting.begin_ends_with_the_first_answer, "hurried", "d-tx-ni", 16, "liveness"),
    Caught(resting.begin_ends_with_the_first_answer, "hurried", "d-tx-optimistic", 16, "liveness"),
    Caught(resting.votes_end_with_the_first_answer, "overlapping", "d-tx", 48, "serializability"),
    Caught(resting.votes_end_with_the_first_answer, "move", "d-tx-optimistic", 100, "serializability"),
    Caught(resting.votes_on_plans_end_with_the_first_answer, "overlapping", "s-tx-safe", 100, "recipients"),
    Caught(resting.echoes_end_with_the_first_answer, "advertise", "s-tx", 9, "recipients"),
    Caught(resting.echoes_end_with_the_first_answer, "advertise", "s-tx-safe", 27, "recipients"),
    Caught(resting.ends_are_answered_with_the_first_answer, "crash", "d-tx", 14, "liveness"),
    Caught(resting.ends_are_answered_with_the_first_answer, "hurried", "d-tx-ni", 44, "liveness"),
    Caught(resting.ends_of_plans_are_answered_with_the_first_answer, "overlapping", "s-tx", 24, "tables"),
    Caught(resting.nobody_is_told_to_forget, "undo", "d-tx", 1, "tables"),
    Caught(resting.nobody_is_told_to_forget, "undo", "s-tx", 1, "tables"),
    Caught(resting.forgetting_stops_at_the_next_broker, "mixed", "d-tx", 2, "tables"),
    Caught(retiring.only_one_neighbour_is_told_to_forget, "undo", "d-tx", 4, "tables"),
    Caught(resting.candidates_are_looked_at_once, "undo", "d-tx-ni", 0, "tables"),
    Caught(resting.floors_outlive_their_clients, "crash", "d-tx", 0, "tables"),
    Caught(resting.what_the_gone_took_back_is_not_looked_at, "undo", "d-tx", 66, "tables"),
    Caught(resting.what_the_gone_took_back_is_not_looked_at, "overlapping", "d-tx-ni", 33, "tables"),
    Caught(resting.what_the_gone_took_back_is_not_looked_at, "undo", "s-tx", 66, "tables"),
    Caught(resting.advertisements_are_not_tidied, "undo", "d-tx", 0, "tables"),
    Caught(resting.advertisements_are_not_tidied, "sequel", "s-tx", 3, "tables"),
    Caught(resting.those_about_to_vote_are_not_waited_for, "skew", "d-tx", 1, "serializability"),
    Caught(resting.those_about_to_vote_are_not_waited_for, "crowd", "d-tx-optimistic", 57, "serializability"),
    Caught(resting.refusals_are_no_objection, "mixed", "d-tx", 59, "answers"),
    Caught(resting.refusals_are_no_objection, "mixed", "d-tx-ni", 1, "answers"),
    Caught(resting.what_is_over_here_is_told_nobody, "undo", "d-tx", 0, "tables"),
    Caught(resting.what_is_over_here_is_told_nobody, "mixed", "s-tx", 0, "tables"),
    Caught(resting.lifetimes_are_told_as_times, "disjoint", "d-tx", 1, "liveness"),
    Caught(resting.lifetimes_are_told_as_times, "disjoint", "d-tx-ni", 1, "liveness"),
    Caught(resting.lifetimes_end_at_every_broker, "hurried", "d-tx", 0, "liveness"),
    Caught(resting.plans_that_are_late_abort_after_their_commit, "hurried", "s-tx", 5, "atomicity"),
    Caught(resting.subscriptions_of_others_are_not_awaited, "overlapping", "s-tx", 14, "consistency"),
    Caught(resting.what_attracts_is_not_what_is_waited_for, "crossing", "s-tx", 7, "liveness"),
    Caught(retiring.late_is_whoever_has_a_smaller_key, "disjoint", "d-tx-optimistic", 0, "liveness"),
    # Journals, snapshots, recovery
    Caught(crashes.effects_do_not_wait, "mixed", "d-tx", 0, "recovery", 3.0),
    Caught(crashes.one_entry_too_many_is_durable, "mixed", "d-tx", 0, "recovery", 3.0),
    Caught(crashes.what_is_handled_is_told_as_processed, "mixed", "d-tx", 7, "recovery", 3.0),
    Caught(crashes.greetings_overtake_what_waits, "mixed", "d-tx", 16, "links", 3.0),
    Caught(crashes.welcomes_of_neighbours_wait, "mixed", "d-tx", 2, "exception", 3.0),
    Caught(crashes.who_is_parted_with_is_welcomed, "consolidate", "d-tx", 162, "links", 1.0),
    Caught(crashes.time_that_passes_is_not_entered, "mixed", "d-tx", 18, "recovery", 3.0),
    Caught(crashes.who_goes_is_not_entered, "mixed", "d-tx", 11, "exception", 3.0),
    Caught(crashes.who_comes_is_not_entered, "mixed", "d-tx", 1, "recovery", 3.0),
    Caught(crashes.entries_are_replayed_now, "mixed", "d-tx", 2, "recovery", 3.0),
    Caught(crashes.nothing_is_synced, "mixed", "d-tx", 0, "recovery", 3.0),
    Caught(crashes.a_failed_sync_is_tried_again, "mixed", "d-tx", 23, "exception", 3.0),
    Caught(crashes.names_are_not_synced, "mixed", "d-tx", 18, "recovery", 3.0),
    Caught(crashes.files_go_before_their_snapshot_is_certain, "mixed", "d-tx", 0, "exception", 3.0),
    Caught(crashes.torn_tails_stay, "mixed", "d-tx", 0, "recovery", 3.0),
    Caught(crashes.every_start_is_another_life, "mixed", "d-tx", 0, "links", 3.0),
    Caught(crashes.entries_behind_a_snapshot_are_forgotten, "mixed", "d-tx", 0, "recovery", 3.0),
    Caught(crashes.snapshots_do_not_wait_for_effects, "mixed", "d-tx", 0, "exception", 3.0),
    Caught(crashes.links_begin_anew, "mixed", "d-tx", 0, "exception", 3.0),
    Caught(crashes.what_is_kept_is_not_saved, "mixed", "d-tx", 0, "exception", 3.0),
    Caught(crashes.clients_are_not_saved, "mixed", "d-tx", 0, "recovery", 3.0),
    Caught(crashes.what_was_processed_is_not_skipped, "mixed", "d-tx", 11, "links", 3.0),
    Caught(crashes.nobody_is_away_after_a_crash, "mixed", "d-tx", 39, "links", 3.0),
    Caught(crashes.time_begins_anew, "mixed", "d-tx", 2, "recovery", 3.0),
    Caught(crashes.the_departed_are_back, "mixed", "d-tx", 11, "recovery", 3.0),
    Caught(crashes.sessions_are_taken_up_twice, "mixed", "d-tx", 2, "recovery", 3.0),
    Caught(crashes.who_returns_may_begin_anew, "mixed", "d-tx", 0, "exception", 3.0),
)

SCHEDULED = (
    Scheduled(
        planned.voids_stop_where_it_has_ended, behind.a_void_comes_where_the_plan_has_ended, "liveness"
    ),
    Scheduled(
        returning.steps_of_a_former_life_are_not_missed,
        behind.a_participant_comes_back_where_others_are_awaited,
        "atomicity",
    ),
    Scheduled(
        parting.voids_stop_on_their_way_to_the_coordinator,
        departures.somebody_is_asked_beyond_the_coordinator,
        "liveness",
    ),
    Scheduled(parting.who_was_asked_may_go, departures.who_was_asked_goes_before_the_vote, "answers"),
    Scheduled(
        parting.who_has_sent_its_steps_may_go, departures.who_has_published_goes_before_the_vote, "answers"
    ),
    Scheduled(
        parting.who_is_refused_takes_the_records_of_the_accepted_one, departures.two_want_one_id, "tables"
    ),
    # Behind transactions
    Scheduled(resting.commits_go_before_repairs, behind.a_repair_is_sent_with_its_commit, "recipients"),
    Scheduled(
        retiring.late_is_whoever_has_a_smaller_key, behind.a_slow_one_beside_fast_ones_elsewhere, "liveness"
    ),
    Scheduled(retiring.the_silent_are_waited_for, behind.others_wait_for_a_silent_one, "liveness"),
    Scheduled(
        retiring.coordinators_may_take_their_time,
        behind.others_wait_for_one_that_does_not_decide,
        "liveness",
    ),
    Scheduled(retiring.what_is_taken_back_is_not_hidden, behind.events_cross_a_commit, "recipients"),
    Scheduled(
        retiring.plans_hide_nothing_behind_their_commit,
        behind.events_cross_the_commit_of_a_plan,
        "recipients",
    ),
    Scheduled(
        retiring.what_is_hidden_is_hidden_from_everybody,
        behind.a_publication_follows_a_move,
        "liveness",
    ),
    Scheduled(
        retiring.the_first_answer_means_that_it_is_over,
        behind.events_cross_a_commit_from_the_middle,
        "recipients",
    ),
    Scheduled(
        retiring.plans_are_over_before_their_brokers_say_so,
        behind.events_cross_the_commit_of_a_plan,
        "recipients",
    ),
    Scheduled(
        retiring.late_steps_of_plans_are_not_hidden,
        behind.an_advertisement_fetches_what_a_plan_has_hidden,
        "recipients",
    ),
    Scheduled(
        retiring.what_is_hidden_is_attracted_for_everybody,
        behind.an_advertisement_fetches_what_a_commit_has_hidden,
        "recipients",
    ),
    Scheduled(retiring.nobody_is_told_that_it_is_over, behind.events_cross_a_commit, "convergence"),
    Scheduled(
        retiring.the_word_that_it_is_over_stops_halfway,
        behind.somebody_moves_away_at_the_edge,
        "liveness",
    ),
    Scheduled(retiring.nothing_is_compacted_behind_transactions, behind.moves_there_and_back, "residue"),
    Scheduled(retiring.nothing_is_compacted_behind_transactions, behind.plans_there_and_back, "residue"),
    Scheduled(
        retiring.old_records_go_although_neighbours_know_them,
        behind.a_subscription_ends_while_nobody_advertises,
        "convergence",
    ),
    Scheduled(
        retiring.undecided_records_cover_others,
        behind.an_undecided_record_hides_a_candidate,
        "convergence",
    ),
    Scheduled(retiring.only_one_neighbour_is_told_to_forget, behind.moves_there_and_back, "residue"),
    Scheduled(
        retiring.votes_trip_over_what_was_compacted,
        behind.a_record_is_compacted_under_an_open_transaction,
        "liveness",
    ),
    Scheduled(operations.lifetimes_never_end, schedules.a_coordinator_falls_asleep, "liveness"),
    Scheduled(
        ordering.subscriptions_are_not_validated,
        schedules.a_subscription_is_repaired_late,
        "serializability",
    ),
    Scheduled(
        ordering.newer_regular_operations_are_overlooked,
        schedules.a_regular_operation_is_newer_than_its_place,
        "serializability",
    ),
    Scheduled(
        ordering.newer_regular_advertisements_are_overlooked,
        schedules.a_regular_advertisement_is_newer_than_its_place,
        "consistency",
    ),
    Scheduled(
        ordering.no_repair_at_commit,
        schedules.an_advertisement_comes_between_vote_and_commit,
        "convergence",
    ),
    Scheduled(
        tables.only_what_came_in_the_transaction_is_undone,
        schedules.another_transaction_carries_a_record_off,
        "convergence",
    ),
    Scheduled(
        tables.stragglers_of_an_aborted_transaction_are_stored,
        schedules.an_attracted_record_comes_after_its_abort,
        "convergence",
    ),
    Scheduled(
        tables.stragglers_of_an_aborted_transaction_are_passed_on,
        schedules.an_attracted_record_comes_after_its_abort,
        "liveness",
    ),
    Scheduled(
        tables.stragglers_of_an_aborted_plan_are_stored,
        schedules.a_step_comes_after_its_abort,
        "convergence",
    ),
    Scheduled(
        tables.withdrawals_take_effect_at_once,
        schedules.a_withdrawal_is_aborted,
        "convergence",
    ),
    Scheduled(
        tables.compaction_goes_on,
        schedules.a_subscription_ends_between_vote_and_commit,
        "convergence",
    ),
    Scheduled(
        tables.plans_count_on_undecided_advertisements,
        schedules.a_plan_counts_on_an_advertisement_that_is_aborted,
        "recipients",
    ),
    Scheduled(
        planned.news_overtakes_publications,
        schedules.a_publication_waits_on_its_way,
        "recipients",
    ),
    Scheduled(planned.advertisements_wait, schedules.advertisements_cross, "atomicity"),
    Scheduled(
        planned.decided_steps_open_a_transaction,
        schedules.a_participant_is_lost_at_any_moment,
        "liveness",
    ),
    Scheduled(
        telling.nested_steps_of_the_lost_are_not_void,
        schedules.a_participant_is_lost_at_any_moment,
        "liveness",
    ),
    Scheduled(
        planned.voids_stop_where_it_has_committed,
        schedules.a_participant_is_lost_at_any_moment,
        "atomicity",
    ),
    Scheduled(
        planned.commits_do_not_miss_the_lost,
        schedules.a_publisher_is_lost_while_its_publication_waits,
        "recipients",
    ),
    Scheduled(
        planned.committed_brokers_drop_steps,
        schedules.a_control_crosses_a_broker_that_has_committed,
        "atomicity",
    ),
    Scheduled(
        clients.coordinator_goes_on_after_its_abort,
        schedules.a_coordinator_aborts_beside_another_frame,
        "liveness",
    ),
    Scheduled(
        clients.coordinator_delivers_at_its_own_decision,
        schedules.a_commit_is_lost_with_its_coordinator,
        "atomicity",
    ),
)

HARMLESS = (
    Harmless(
        retiring.floors_are_never_raised,
        ("overtaken", "undo"),
        "d-tx",
        "A transaction with a smaller key than one that has committed began at its broker before that one asked "
        "there for votes. Links are FIFO: so its begin is at every broker before that commit, and keeps whatever "
        "is written behind the commit from being compacted until it has ended itself.",
    ),
    Harmless(
        ordering.epochs_follow_commits_only,
        ("skew", "overlapping"),
        "d-tx",
        "A key that is too small costs an abort when a larger one has its vote, and never the order: the "
        "late rule stands. A transaction that runs alone has only committed ones before it.",
    ),
    Harmless(
        tables.records_brought_by_others_stop_there,
        ("carve", "crossing"),
        "d-tx-ni",
        "Whoever stores an attracted record has sent it to all who want it, and an advertisement that comes "
        "later attracts it itself: when its own message comes there is nobody left to send it to.",
    ),
    Harmless(
        clients.objections_to_plans_are_overlooked,
        ("circular", "crash"),
        "s-tx-safe",
        "The coordinator's edge broker knows the objections that it has passed on, and aborts where it is "
        "told to commit all the same.",
    ),
    Harmless(
        clients.planner_speaks_while_it_aborts,
        ("circular", "aborts"),
        "s-tx",
        "All that a coordinator says goes through the one broker that it has sent its abort to before: "
        "that drops steps of a plan of its client that has ended, by the plan's number.",
    ),
    Harmless(
        crashes.acknowledgements_are_not_replayed,
        ("mixed", "crash"),
        "d-tx",
        "A peer that comes back says how much it has processed. Until then a broker that has recovered keeps more"
        " than it need.",
        3.0,
    ),
)
