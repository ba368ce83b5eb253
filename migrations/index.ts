import { CreateRoles1764500000001 } from './1764500000001-create-roles';
import { CreateLog1764500000002 } from './1764500000002-create-log';
import { CreateNamesAndDedupe1764500000003 } from './1764500000003-create-names-and-dedupe';
import { CreateWorkList1764500000004 } from './1764500000004-create-work-list';
import { CreateConsumerLanes1764500000005 } from './1764500000005-create-consumer-lanes';
import { CreateLeases1764500000006 } from './1764500000006-create-leases';
import { CreateRelayCursor1764500000007 } from './1764500000007-create-relay-cursor';
import { CreateProjection1764500000008 } from './1764500000008-create-projection';
import { CreateCheckpointsAndSubjectKeys1764500000009 } from './1764500000009-create-checkpoints-and-subject-keys';
import { CreateAppendFunction1764500000010 } from './1764500000010-create-append-function';
import { CreateIngestReadModel1764500000100 } from './1764500000100-create-ingest-read-model';
import { CreateRegistryReadModel1764500000200 } from './1764500000200-create-registry-read-model';
import { AddTenantToRewardGroups1764500000210 } from './1764500000210-add-tenant-to-reward-groups';
import { CreateExperimentProcess1764500000300 } from './1764500000300-create-experiment-process';

/** Every migration of the platform, oldest first. A read model of an app adds its own file here. */
export const MIGRATIONS = [
  CreateRoles1764500000001,
  CreateLog1764500000002,
  CreateNamesAndDedupe1764500000003,
  CreateWorkList1764500000004,
  CreateConsumerLanes1764500000005,
  CreateLeases1764500000006,
  CreateRelayCursor1764500000007,
  CreateProjection1764500000008,
  CreateCheckpointsAndSubjectKeys1764500000009,
  CreateAppendFunction1764500000010,
  CreateIngestReadModel1764500000100,
  CreateRegistryReadModel1764500000200,
  AddTenantToRewardGroups1764500000210,
  CreateExperimentProcess1764500000300,
];

export { APP_ROLE, OWNER_ROLE, asOwner, createReadModelSchema } from './as-owner';
